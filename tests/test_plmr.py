"""PLMR of the presets."""

import wafer_jax as wj


def test_a_wse2_as_waferllm_describes_it():
    p = wj.plmr(wj.hardware("wse2"))
    assert p.pes == 994 * 750
    assert (p.alpha_cycles, p.beta_cycles) == (1, 5)
    assert p.alpha_cycles < p.beta_cycles
    assert p.memory_bytes == 48 * 1024
    assert (p.address_paths, p.routable_colors) == (32, 24)
    assert p.worst_access_cycles() == p.remote_gap == 994 + 750
    assert p.worst_access_cycles(stages=10) == 994 + 750 + 50


def test_it_follows_the_machine_and_the_mesh():
    hw = wj.hardware("wse3", mesh=(6, 9))
    assert wj.plmr(hw).worst_access_cycles(1) == 2 * 15 + 5
    assert wj.plmr(hw.replace(ramp_cycles=4)).beta_cycles == 9
    assert {wj.plmr(wj.hardware(name)).pes for name in wj.preset_names()} >= {360, 140}
