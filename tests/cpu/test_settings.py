"""Settings: types by Hydra, ranges and sense by check, words by advise."""

import math
import tomllib
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from ffpa.measure.contestants import contestants_of
from ffpa.settings import (
    MeasureSettings,
    Settings,
    SettingsError,
    advise,
    check,
    chosen,
    keep_text,
    register,
)
from ffpa_build import manifest

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
GROUPS = ["acc", "baselines", "experiment", "kernels", "measure", "shape"]


def composed(*overrides, hydra=False):
    register()
    OmegaConf.register_new_resolver("ffpa_outputs", lambda: "outputs", replace=True)
    OmegaConf.register_new_resolver("ffpa_pid", lambda: 0, replace=True)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides), return_hydra_config=hydra)


def settings_of(*overrides):
    return OmegaConf.to_object(composed(*overrides))


def options(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_the_example_of_the_readme():
    settings = settings_of("d=576", "acc=f32")
    check(settings)
    assert isinstance(settings, Settings)
    assert (settings.d, settings.b, settings.h, settings.n) == (576, 1, 32, 8192)
    assert chosen(settings.acc) == ["f32"]
    assert "sdpa-efficient" in chosen(settings.baselines)


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_of_every_group_is_valid(group):
    for option in options(group):
        overrides = [f"{group}={option}"]
        if (group, option) != ("acc", "all"):
            check(settings_of(*overrides))


def sweep_of(experiment):
    return dict(composed(f"experiment={experiment}", hydra=True).hydra.sweeper.params or {})


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_experiment_holds_its_sweep_and_name(experiment):
    assert sweep_of(experiment)
    settings = settings_of(f"experiment={experiment}")
    assert settings.name == experiment
    assert contestants_of(settings, ["naive", "split_d-sm80"])


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_value_of_every_sweep_can_be_run(experiment):
    for key, values in sweep_of(experiment).items():
        for value in str(values).split(","):
            check(settings_of(f"experiment={experiment}", f"{key}={value}"))


def test_the_ablation_asks_for_every_variant_where_it_was_compiled():
    asked = set()
    for kernels in sweep_of("ablation")["kernels"].split(","):
        settings = settings_of("experiment=ablation", f"kernels={kernels}")
        variants = [name.partition("/")[2] for name in chosen(settings.kernels)]
        asked |= {(settings.d, variant) for variant in variants if variant}
    compiled = {
        (instance.headdim, instance.variant)
        for instance in manifest.load(CONF.parent)
        if instance.id == "split_d-sm80" and instance.variant
        if not (instance.fallback or instance.narrow or instance.masks)
    }
    assert asked == compiled


def test_headdim_is_the_figure_of_the_paper():
    assert sweep_of("headdim")["d"] == ",".join(str(d) for d in range(320, 1025, 64))
    settings = settings_of("experiment=headdim")
    assert chosen(settings.acc) == ["f16", "f32"]
    assert (settings.b, settings.n) == (1, 8192)


def test_a_smoke_run_stays_out_of_the_recorded_files():
    settings = settings_of("experiment=headdim", "measure=smoke")
    assert settings.results_name == "headdim-smoke"
    assert settings.measure.max_rounds == 10


def test_an_experiment_may_bring_its_own_way_of_measuring():
    settings = settings_of("experiment=accuracy")
    assert settings.measure.tolerate_wrong
    assert settings.results_name == "accuracy"


def test_stalls_are_of_equal_weights_and_values_with_a_mean():
    settings = settings_of("experiment=stalls", "measure.value_mean=1.3", "measure=smoke")
    assert (settings.measure.input_scale, settings.measure.value_mean) == (0.001, 1.3)
    assert settings.measure.tolerate_wrong and settings.results_name == "stalls-smoke"
    assert len(chosen(settings.acc)) == 5
    check(settings)


def test_lists_of_options_add_up():
    settings = settings_of("acc=[f16,f32]", "kernels=[naive,split_d-sm80]")
    assert chosen(settings.acc) == ["f16", "f32"]
    assert chosen(settings.kernels) == ["naive", "split_d-sm80"]


@pytest.mark.parametrize("value", ["576.0", "abc", "", "1e3"])
def test_hydra_refuses_what_is_no_integer(value):  # H02
    with pytest.raises(ConfigCompositionException):
        settings_of(f"d={value}")


def test_a_leading_zero_is_a_number():  # H02
    assert settings_of("d=0576").d == 576


@pytest.mark.parametrize("override", ["acc=fp32", "baselines=sdpa-eficient", "experiment=heads"])
def test_hydra_lists_the_options_of_a_group(override):
    with pytest.raises(Exception, match="Available options") as raised:
        settings_of(override)
    group = override.partition("=")[0]
    assert all(option in str(raised.value) for option in options(group))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": -1}, r"d=-1 is out of range: give 8 to 1024"),
        ({"d": 100_000}, r"d=100000 is out of range: give 8 to 1024"),
        ({"d": 577}, r"d=577 is not a multiple of 8: pad to d=584"),
        ({"b": 0}, r"b=0 is out of range"),
        ({"n": 0}, r"n=0 is out of range"),
        ({"nk": -5}, r"nk=-5 is out of range"),
        ({"hkv": 0}, r"hkv=0 is out of range"),
        ({"h": 6, "hkv": 4}, r"h=6 query heads cannot be shared out over hkv=4"),
        ({"seed": -1}, r"seed=-1 is out of range"),
        ({"acc": {"fp32": True}}, r"acc.fp32 is unknown: give one of f16, f32"),
        ({"name": "../x"}, r"is to name a file"),
        ({"measure": MeasureSettings(min_rounds=0)}, r"measure.min_rounds=0 is out of range"),
        ({"measure": MeasureSettings(min_rounds=300)}, r"min_rounds=300 is above .*max_rounds=200"),
        ({"measure": MeasureSettings(input_scale=0)}, r"measure.input_scale=0 is out of range"),
        ({"measure": MeasureSettings(value_mean=2e3)}, r"value_mean=2000.0 is out of range"),
        ({"measure": MeasureSettings(value_mean=math.nan)}, r"value_mean=nan is out of range"),
        ({"measure": MeasureSettings(timeout_s=-1)}, r"measure.timeout_s=-1 is out of range"),
    ],
)
def test_ranges(changes, message):  # H02
    with pytest.raises(SettingsError, match=message):
        check(Settings(**changes))


def test_bf16_needs_an_f32_accumulator():
    with pytest.raises(SettingsError, match="give acc=f32 or dtype=fp16"):
        check(settings_of("dtype=bf16", "acc=f16"))
    check(settings_of("dtype=bf16", "acc=both"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dd=576"], "dd is no setting: did you mean d?"),
        (["causl=true"], "did you mean causal?"),
        (["d", "=", "576"], "'d' is not key=value: write for example d=576"),
        (["d==576"], "d==576 has two equals signs: write d=576"),
        (["--d=576"], "--d=576: settings take no dashes, write d=576"),
        (["zzz=1"], "the settings are acc, b, baselines"),
    ],
)
def test_advice(arguments, words):  # H01, H04
    assert words in "\n".join(advise(arguments, GROUPS))


def test_no_advice_for_what_is_right():
    arguments = "-m d=512,576 experiment=headdim measure.max_rounds=5 --cfg job acc=[f16,f32]"
    assert advise(arguments.split(), GROUPS) == []
    assert advise(["hydra.verbose=true", "~baselines", "+shape=vae-384"], GROUPS) == []


TEXTS = ["1e5", "0123", "true", "null", "a b", "it's", "1,2", "a\\b", "a\\'b", "a\\", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_a_tag_stays_the_text_it_is(text):  # H11
    (argument,) = keep_text([f"tag={text}"])
    assert settings_of(argument).tag == text


def test_python_is_one_on_which_hydra_starts():  # H10
    """Python 3.14's argparse asks for help that is text, and Hydra 1.3 gives an object."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    helps = [action.help for action in get_args_parser()._actions]
    starts = all(text is None or isinstance(text, str) for text in helps)
    bounded = project["requires-python"] == ">=3.11,<3.14"
    assert bounded != starts, "Hydra starts on 3.14: lift the bound of requires-python"


def test_other_settings_are_left_alone():
    assert keep_text(["d=576", "-m", "tag='x'"]) == ["d=576", "-m", "tag='x'"]
