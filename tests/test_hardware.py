"""GPUs by name and by size, the memory a driver reports, and the server defaults of rule 53."""

import pytest

from sim.sizing.hardware import GIB, default_limits, find_gpu, known_gpus
from workloads.request import InputError


@pytest.mark.parametrize(("text", "name"), [
    ("H100", "H100-80GB"), ("h100-80gb", "H100-80GB"), ("NVIDIA H100 80GB HBM3", "H100-80GB"),
    ("a100-40gb", "A100-40GB"),
    ("A100-SXM4-80GB", "A100-80GB"), ("A100 80GB", "A100-80GB"), ("RTX 3090", "RTX 3090"), ("rtx3090", "RTX 3090"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("4090", "RTX 4090"), ("A6000", "RTX A6000"), ("Tesla T4", "T4"),
    ("L4", "L4"), ("L40S", "L40S"), ("A10G", "A10G"), ("V100-32GB", "V100-32GB"), ("MI300X", "MI300X"),
    ("B200", "B200"), ("H200", "H200"), ("RTX 5090", "RTX 5090")])
def test_usual_spellings(text, name):
    assert find_gpu(text).name == name


@pytest.mark.parametrize(("name", "gib"), [    # total_gpu_gib of the start-up logs
    ("A100-40GB", 39.38),    # v011
    ("H100", 79.18),         # v155
    ("H200", 139.81),        # v137
    ("RTX 3090", 23.58),     # v001
    ("T4", 14.56)])          # v032
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
    assert len({gpu.name for gpu in gpus}) == len(gpus) > 20
    for gpu in gpus:
        assert 0.85 * gpu.label_gb * 1e9 < gpu.memory_bytes <= gpu.label_gb * GIB
        assert 1e11 < gpu.bandwidth_bytes_per_s < 1e13
        assert 5e13 < gpu.peak_flops_per_s < 3e15
        assert "memory: " in gpu.source
        assert "speeds: " in gpu.source


@pytest.mark.parametrize(("gpu", "limits"), [    # SEMANTICS rule 53, server
    ("H100", (1024, 8192)), ("H200", (1024, 8192)), ("B200", (1024, 16384)), ("MI300X", (1024, 16384)),
    ("A100-80GB", (256, 2048)), ("A100-40GB", (256, 2048)), ("L4", (256, 2048)), ("RTX 3090", (256, 2048)),
    ("69GiB", (256, 2048)), ("70GiB", (1024, 8192)), ("159GiB", (1024, 8192)), ("160GiB", (1024, 16384))])
def test_server_defaults(gpu, limits):
    assert default_limits(find_gpu(gpu)) == limits


def test_server_defaults_without_a_gpu():
    assert default_limits(None) == (256, 8192)
