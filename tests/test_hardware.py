"""GPUs by name and by size, the memory a driver reports, and the server defaults of rule 53."""

import json
import re
from importlib import resources

import pytest

from sim.sizing.hardware import GIB, default_limits, find_gpu, known_gpus
from workloads.request import InputError


@pytest.mark.parametrize(("text", "name"), [
    ("H100", "H100-80GB"), ("h100-80gb", "H100-80GB"), ("NVIDIA H100 80GB HBM3", "H100-80GB"),
    ("a100-40gb", "A100-40GB"),
    ("A100-SXM4-80GB", "A100-80GB"), ("A100 80GB", "A100-80GB"), ("RTX 3090", "RTX 3090"), ("rtx3090", "RTX 3090"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("4090", "RTX 4090"), ("A6000", "RTX A6000"), ("Tesla T4", "T4"),
    ("L4", "L4"), ("L40S", "L40S"), ("A10G", "A10G"), ("V100-32GB", "V100-32GB"), ("MI300X", "MI300X"),
    ("B200", "B200"), ("H200", "H200"), ("RTX 5090", "RTX 5090"),
    ("NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 laptop"), ("RTX 5070 laptop 8GB", "RTX 5070 laptop"),
    ("RTX 4070", "RTX 4070"), ("RTX 2060 12GB", "RTX 2060 12GB"), ("RTX 3060", "RTX 3060 12GB"),
    ("Quadro A4000 16GB", "RTX A4000"), ("A5500", "RTX A5500"), ("Tesla P40", "P40"),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"), ("RTX PRO 6000 96GB", "RTX PRO 6000"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"), ("H100 NVL", "H100-NVL"),
    ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"), ("GH200 96GB", "GH200-96GB"), ("GB200", "GB200"), ("b300", "B300"),
    ("DGX Spark", "GB10"), ("MI50 16GB", "MI50-16GB"), ("AMD Instinct MI300X", "MI300X"), ("MI355X", "MI355X"),
    ("Gaudi3", "Gaudi 3"), ("TPU v6e", "TPU v6e"), ("Ascend NPU 64GB", "Ascend 910B"), ("M4 Max", "M4 Max 128GB"),
    ("Apple M3 Ultra 512GB", "M3 Ultra 512GB"), ("Strix Halo", "Strix Halo 128GB")])
def test_usual_spellings(text, name):
    assert find_gpu(text).name == name


@pytest.mark.parametrize(("name", "gib"), [    # total_gpu_gib of the start-up logs
    ("A100-40GB", 39.38),    # v011
    ("H100", 79.18),         # v155
    ("H200", 139.81),        # v137
    ("RTX 3090", 23.58),     # v001
    ("T4", 14.56),           # v032
    ("RTX 4070 laptop", 7.65),    # v034
    ("RTX 2060 12GB", 12.0),      # v029
    ("GB10", 121.7),              # v079
    ("Ascend 910B", 61.27)])      # v082
def test_memory_is_what_the_driver_reports(name, gib):
    gpu = find_gpu(name)
    assert gpu.memory_bytes == round(gib * GIB)
    assert "start-up log" in gpu.source


def test_gb_and_gib_are_kept_apart():
    assert find_gpu("80GB").memory_bytes == 80 * 10**9
    assert find_gpu("80GiB").memory_bytes == 80 * 2**30
    assert find_gpu(" 0.5 gib ").memory_bytes == 2**29
    assert find_gpu("80GB").bandwidth_bytes_per_s is None


@pytest.mark.parametrize(("text", "said"), [
    ("A100", "A100-40GB"), ("V100", "V100-16GB"), ("H1000", "H100-80GB"), ("", "unknown GPU ''"), ("80", "80"),
    ("0GB", "0GB"), ("-80GB", "-80GB"), ("80TB", "80TB"), ("1e3GB", "1e3GB"), ("nanGB", "nanGB"),
    ("9" * 400 + "GB", "no such memory")])
def test_unknown_ones_are_one_line_with_what_is_close(text, said):
    with pytest.raises(InputError, match=said) as error:
        find_gpu(text)
    assert "\n" not in str(error.value)


def test_the_two_sizes_of_an_a100_are_both_offered():
    with pytest.raises(InputError, match=r"A100-[48]0GB, .*A100-[48]0GB"):
        find_gpu("A100")


def test_the_catalogue_makes_sense():
    gpus = known_gpus()
    assert len({gpu.name for gpu in gpus}) == len(gpus) > 100
    for gpu in gpus:
        # of memory that CPU and GPU share only a part may be the GPU's
        least = 0.75 if "unified memory" in gpu.source else 0.85
        assert least * gpu.label_gb * 1e9 < gpu.memory_bytes <= 1.08 * gpu.label_gb * 1e9
        assert 1e11 < gpu.bandwidth_bytes_per_s < 1e13
        assert 5e12 < gpu.peak_flops_per_s < 3e15
        assert "memory: " in gpu.source
        assert "speeds: " in gpu.source


@pytest.mark.parametrize(("name", "gib"), [    # "total capacity" of out-of-memory messages
    ("B200", 178.35), ("B300", 267.69), ("GB200", 184.31), ("MI300X", 191.98), ("MI325X", 255.98), ("MI355X", 287.98),
    ("RTX PRO 6000", 94.97), ("H100 NVL", 93.10), ("L40S", 44.53), ("RTX 3060", 11.76), ("RTX 3080", 9.78)])
def test_memory_is_what_a_process_sees(name, gib):
    gpu = find_gpu(name)
    assert gpu.memory_bytes == round(gib * GIB)
    assert "out-of-memory" in gpu.source


def test_names_and_aliases_are_unique():
    records = json.loads(resources.files("sim.sizing").joinpath("data/gpus.json").read_text("utf-8"))["gpus"]
    names = [re.sub(r"[\s_-]|nvidia|geforce", "", name.lower()) for r in records for name in (r["name"], *r["aliases"])]
    assert sorted(names) == sorted(set(names))
    for record in records:
        for name in (record["name"], *record["aliases"]):
            assert find_gpu(name).name == record["name"]


def test_from_a_laptop_to_a_b200_and_to_512_gb():
    labels = [gpu.label_gb for gpu in known_gpus()]
    assert min(labels) == 6
    assert max(labels) == 512


@pytest.mark.parametrize(("gpu", "limits"), [    # rule 53 of docs/rules.md, server
    ("H100", (1024, 8192)), ("H200", (1024, 8192)), ("B200", (1024, 16384)), ("MI300X", (1024, 16384)),
    ("A100-80GB", (256, 2048)), ("A100-40GB", (256, 2048)), ("L4", (256, 2048)), ("RTX 3090", (256, 2048)),
    ("69GiB", (256, 2048)), ("70GiB", (1024, 8192)), ("159GiB", (1024, 8192)), ("160GiB", (1024, 16384))])
def test_server_defaults(gpu, limits):
    assert default_limits(find_gpu(gpu)) == limits


def test_server_defaults_without_a_gpu():
    assert default_limits(None) == (256, 8192)
