"""How weights are stored: the bits of a weight by format, and which parts of a model a format leaves in 16 bits.

    format      bits a weight                                 what it quantises unless a config says otherwise
    fp8, int8   8                                             the matrices of all layers
    mxfp8       8 + 8 / 32 (a scale of 8 bits)                the matrices of all layers
    gptq, awq   bits + 32 / group (an fp16 scale and zero)    the matrices of all layers                         4.25 at group 128
    w4a16       4 + 16 / group (an fp16 scale)                the matrices of all layers
    nvfp4       4 + 8 / 16 (an fp8 scale)                     the matrices of all layers
    mxfp4       4 + 8 / 32 (a scale of 8 bits)                the routed experts
    Q4_K_M ...  the average of a whole file                   everything                                         GGUF
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sim.models.model_names import shortened
from workloads.request import InputError

ATTENTION, LOW_RANK, OUT = "attention", "low-rank projections", "attention output"
STATE, DENSE, SHARED, ROUTED = "states", "dense MLPs", "shared experts", "routed experts"
HEAD, EMBEDDING, REST = "output layer", "embeddings", "rest"  # the rest: norms, routers
MATRICES = (ATTENTION, LOW_RANK, OUT, STATE, DENSE, SHARED, ROUTED)
PARTS = (*MATRICES, HEAD, EMBEDDING, REST)

GROUP_OVERHEAD_BITS = 32                               # an fp16 scale and an fp16 zero a group
GGUF_BITS = {  # bits a weight of a whole Llama-3.1-8B file, measured: README of llama.cpp's quantize tool
    "F16": "16.0005", "BF16": "16.0005", "Q8_0": "8.5008", "Q6_K": "6.5633", "Q5_K_M": "5.7036", "Q5_K_S": "5.5704",
    "Q4_K_M": "4.8944", "Q4_K_S": "4.6672", "Q3_K_L": "4.2979", "Q3_K_M": "3.9960", "Q3_K_S": "3.6429", "Q2_K": "3.1593",
    "Q2_K_S": "2.9697", "IQ4_NL": "4.6818", "IQ4_XS": "4.4597", "IQ3_M": "3.7628", "IQ3_S": "3.6606", "IQ3_XS": "3.4977",
    "IQ3_XXS": "3.2548", "IQ2_M": "2.9294", "IQ2_S": "2.7403", "IQ2_XS": "2.5882", "IQ2_XXS": "2.3824", "IQ1_M": "2.1460",
    "IQ1_S": "2.0042",
    "Q4_0": "4.5", "Q4_1": "5", "Q5_0": "5.5", "Q5_1": "6",  # a block of 32: an fp16 scale, and an fp16 minimum in the _1 types
}
DTYPE_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
_SCALED = {"fp8": Fraction(8), "int8": Fraction(8), "mxfp8": 8 + Fraction(8, 32), "int4": Fraction(4),
           "nvfp4": 4 + Fraction(8, 16), "bitsandbytes": 4 + Fraction(32, 64)}


@dataclass(frozen=True)
class Layout:
    """Which parts of which layer a checkpoint quantises, where its config says so.

    ``parts`` has one set a layer of the model and one more for multi-token prediction, ``plain`` what no layer quantises.
    ``formats`` names the format of each part where they differ (mixed precision).

    >>> Layout("nvfp4", parts=(frozenset({ROUTED}),)).formats
    ()
    """

    method: str
    parts: tuple[frozenset[str], ...]
    plain: tuple[str, ...] = ()
    formats: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class WeightFormat:
    """How weights are stored.

    Attributes
    ----------
    bits : Fraction
        Of a quantised weight, scales included.
    other_bits : int
        Of what is not quantised.
    covers : frozenset of str
        Which of `PARTS` are quantised.
    layers : tuple of frozenset of str
        The same by layer, where layers differ; empty: all as ``covers``.
    plain : tuple of str
        Matrices that the model has and no layer quantises.
    mixed : tuple of (str, WeightFormat)
        Formats of parts that have their own.
    """

    name: str
    bits: Fraction
    other_bits: int = 16
    covers: frozenset[str] = frozenset(PARTS)
    layers: tuple[frozenset[str], ...] = ()
    plain: tuple[str, ...] = ()
    mixed: tuple[tuple[str, WeightFormat], ...] = ()

    def bits_of(self, part: str, layer: int | None = None) -> Fraction:
        """Bits of a weight of this part; of this layer, where layers differ.

        >>> float(weight_format("nvfp4").bits_of(ROUTED)), int(weight_format("nvfp4").bits_of(HEAD))
        (4.5, 16)
        """
        covered = self.layers[layer] if self.layers and layer is not None else self.covers
        if part not in covered:
            return Fraction(self.other_bits)
        return next((form.bits for own, form in self.mixed if own == part), self.bits)

    def describe(self) -> str:
        """Name and bits, and what is left in 16 bits.

        >>> weight_format("awq", group_size=128).describe()
        'awq, 4.25 bits a weight, embeddings and output layer in 16'
        """
        if self.mixed:
            return "mixed precision: " + ", ".join(f"{part} {form.name}" for part, form in self.mixed) \
                + f", all else in {self.other_bits}"
        text = f"{self.name}, {float(self.bits):g} bits a weight"
        if not set(MATRICES) & self.covers - {ROUTED}:
            return f"{text}, all but the routed experts in {self.other_bits}"
        if EMBEDDING in self.covers:
            return text
        return f"{text}, {', '.join([*self.plain, 'embeddings and output layer'])} in {self.other_bits}"


def weight_format(name: str, bits: int | None = None, group_size: int | None = None) -> WeightFormat:
    """The storage format of a dtype, a quantisation method or a GGUF type.

    Parameters
    ----------
    name : str
        A dtype, a method as vLLM names it, or a GGUF type such as ``Q4_K_M``.
    bits, group_size : int, optional
        Of grouped methods: 4 bits in groups of 128 unless given.

    Raises
    ------
    InputError
        If the size of such weights is not known.

    >>> float(weight_format("gptq").bits) / 8
    0.53125
    """
    matrices = frozenset(MATRICES)
    if name in DTYPE_BITS:
        return WeightFormat(name, Fraction(DTYPE_BITS[name]), DTYPE_BITS[name])
    if name.upper() in GGUF_BITS:
        return WeightFormat(name.upper(), Fraction(GGUF_BITS[name.upper()]))
    if name in ("gptq", "awq"):
        return WeightFormat(name, (bits or 4) + Fraction(GROUP_OVERHEAD_BITS, group_size or 128), covers=matrices)
    if name == "w4a16":                                # symmetric: no zero
        return WeightFormat(name, (bits or 4) + Fraction(16, group_size or 128), covers=matrices)
    if name == "mxfp4":
        return WeightFormat(name, 4 + Fraction(8, 32), covers=frozenset({ROUTED}))
    if name in _SCALED:
        return WeightFormat(name, _SCALED[name], covers=matrices)
    known = (*DTYPE_BITS, *_SCALED, "gptq", "awq", "w4a16", "mxfp4", *GGUF_BITS)
    raise InputError(f"the size of {shortened(name)} weights is not known: one of {', '.join(known)}")


def laid_out(stored: WeightFormat, layout: Layout) -> WeightFormat:
    """A format as a checkpoint's layout applies it: parts by layer, formats by part."""
    mixed = tuple((part, weight_format(name)) for part, name in layout.formats)
    covers = frozenset(part for parts in layout.parts for part in parts) | {part for part, _ in mixed if part == HEAD}
    return WeightFormat(stored.name, stored.bits, stored.other_bits, covers, layout.parts, layout.plain, mixed)
