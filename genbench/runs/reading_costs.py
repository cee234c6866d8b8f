"""What readings will take: from past ones of the same measure on the same suite, else from passes over data.

The unit is one training image forward and backward, whose seconds a network's kind knows. Nearly all that a
reading takes are parts that measures of a network share (`genbench.subject.shared`), each computed once: some
look at all training images, most at a number of them that does not grow with the training set. What each
takes was counted in readings of `mini` and of `nin-fashion`, whose networks and training sets differ most;
`tests/test_reading_costs.py` holds it against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from genbench.engine.cells import Cell
from genbench.plugin.contract import Measure
from genbench.runs.past import PastReading
from genbench.runs.plan import Plan
from genbench.suites.kind import kind_of
from genbench.suites.plan import TrainingPass

__all__ = ["PartCost", "ReadingCosts", "parts_of", "reading_costs", "reading_memory", "shared_seconds"]

_ENGINE_SECONDS = 0.012
"""Of the engine, for a reading: to hand it out, to check it and to store it."""
_LOADED_SECONDS = 0.1
"""Of loading a network, once for all readings of it."""
_PASS_BYTES = 5 * 2**28
"""That passes take at most: they are cut to what fits (`genbench.subject.fitting`), and a heap is loose."""
_COSTLY_IMAGES = 1000
"""A part that takes more holds gradients of single examples, products with them, many copies of weights."""
_IMAGES_PER_PASS = 3
"""A pass forward and backward costs as much as three forward."""


@dataclass(frozen=True)
class PartCost:
    """Of a part of one network."""

    images: float = 0.0
    """Forward and backward, however many there are for training."""
    share: float = 0.0
    """More of them, per training image."""
    examples: int = 0
    """How many training images it looks at; of a smaller set all, and it takes less in proportion."""
    seconds: float = 0.0
    """That have nothing to do with images."""

    def passes(self, training_images: int) -> float:
        """Images forward and backward."""
        looked_at = min(1.0, training_images / self.examples) if self.examples else 1.0
        return self.images * looked_at + self.share * training_images


_PARTS = {
    "logits": PartCost(images=20, share=0.25),
    'sigma{"magnitude_aware": false}': PartCost(images=1000),
    'sigma{"magnitude_aware": true}': PartCost(images=1000),
    "batch_gradients": PartCost(images=2700),
    "gradient_noise": PartCost(images=850, share=0.85, examples=1024),
    "scores": PartCost(images=1200, examples=1024),
    "input_gradients": PartCost(images=330, examples=512),
    "information": PartCost(images=2700, examples=512),
    "curvature": PartCost(images=3000),
    'weight_noise{"kind": "isotropic"}': PartCost(images=500),
    'weight_noise{"kind": "tensor"}': PartCost(images=1000),
    'weight_noise{"kind": "magnitude"}': PartCost(images=1000),
    'response_curve{"layer": 0, "pairs": "intra"}': PartCost(images=935, examples=768),
    'response_curve{"layer": 0, "pairs": "inter"}': PartCost(images=935, examples=768),
    'response_curve{"layer": 1, "pairs": "intra"}': PartCost(images=710, examples=768),
    'response_curve{"layer": 1, "pairs": "inter"}': PartCost(images=710, examples=768),
    "midpoints": PartCost(images=130),
    **{
        f'transformed_curve{{"sweep": "folded", "transformation": "{name}"}}': PartCost(
            images=1060, examples=512
        )
        for name in ("rotation", "horizontal", "vertical", "colour")
    },
    "log_evidence": PartCost(images=9300, examples=1024),
    "log_paths": PartCost(images=55),
    'log_paths{"normalised": false}': PartCost(images=55),
    'spectral_norms{"grid": "image", "of": "final"}': PartCost(images=40),
    'spectral_norms{"grid": "image", "of": "change"}': PartCost(images=40),
    "flat_spectral_norms": PartCost(images=5),
    "own: products": PartCost(images=100),
    "own: codes": PartCost(images=100, share=0.31),
    "own: singular values": PartCost(seconds=0.14),
}
"""Parts by their labels; at the end, what single measures do by themselves."""
_USED_BY = {
    "logits": "inverse_margin inverse_margin_p10 l1_over_margin_p10 l2_over_margin_p10 "
    "margin_normalized_param_norm log_prod_of_fro_over_margin log_sum_of_fro_over_margin "
    "log_prod_of_spec_over_margin log_sum_of_spec_over_margin log_spec_init_main log_spec_orig_main "
    "path_norm_over_margin aic tic waic cross_entropy negative_entropy ece mce ace reliability_diagram "
    "temperature_scaling pacbayes_init pacbayes_orig pacbayes_flatness pacbayes_mag_init pacbayes_mag_orig "
    "pacbayes_mag_flatness gradient_norm sharpness adaptive_sharpness gradient_noise_final_var "
    "gradient_noise_scale flatness_proxy tic_bias tic_bias_bound hessian_top_eigenvalue hessian_trace "
    "pac_bayes_bound waic_bias sharpness_magnitude sharpness_magnitude_init pac_bayes_magnitude "
    "pac_bayes_magnitude_init sharpness_magflat pac_bayes_magflat",
    'sigma{"magnitude_aware": false}': "pacbayes_init pacbayes_orig pacbayes_flatness",
    'sigma{"magnitude_aware": true}': "pacbayes_mag_init pacbayes_mag_orig pacbayes_mag_flatness",
    "batch_gradients": "gradient_norm sharpness adaptive_sharpness",
    "gradient_noise": "gradient_noise_final_var gradient_noise_scale flatness_proxy",
    "scores": "fisher_rao_norm",
    "input_gradients": "input_gradient_norm",
    "information": "tic tic_bias tic_bias_bound hessian_top_eigenvalue hessian_trace",
    "curvature": "hessian_top_eigenvalue hessian_trace",
    'weight_noise{"kind": "isotropic"}': "pac_bayes_bound",
    'weight_noise{"kind": "tensor"}': "waic waic_bias sharpness_magnitude sharpness_magnitude_init "
    "pac_bayes_magnitude pac_bayes_magnitude_init",
    'weight_noise{"kind": "magnitude"}': "sharpness_magflat pac_bayes_magflat",
    'response_curve{"layer": 0, "pairs": "intra"}': "gi_intra_l0 pal_intra_l0",
    'response_curve{"layer": 0, "pairs": "inter"}': "gi_inter_l0 pal_inter_l0",
    'response_curve{"layer": 1, "pairs": "intra"}': "gi_intra_l1 pal_intra_l1",
    'response_curve{"layer": 1, "pairs": "inter"}': "gi_inter_l1 pal_inter_l1",
    "midpoints": "mixup_intra_l0 dbi_mixup",
    "own: products": "dbi_mixup",
    'transformed_curve{"sweep": "folded", "transformation": "rotation"}': "gi_rotation_l0",
    'transformed_curve{"sweep": "folded", "transformation": "horizontal"}': "gi_horizontal_l0",
    'transformed_curve{"sweep": "folded", "transformation": "vertical"}': "gi_vertical_l0",
    'transformed_curve{"sweep": "folded", "transformation": "colour"}': "gi_colour_l0",
    "log_evidence": "ml_pacbayes",
    "own: codes": "compression_bound",
    "log_paths": "path_norm path_norm_over_margin",
    'log_paths{"normalised": false}': "path_norm_unnormalised",
    'spectral_norms{"grid": "image", "of": "final"}': "log_prod_of_spec log_sum_of_spec "
    "log_prod_of_spec_over_margin log_sum_of_spec_over_margin log_spec_init_main log_spec_orig_main "
    "fro_over_spec",
    'spectral_norms{"grid": "image", "of": "change"}': "dist_spec_init",
    "flat_spectral_norms": "spec_sum spec_prod spectral_norm_per_layer",
}
"""Part to the measures that take it, or a part that does."""
_LIKE = {
    "flatness": 'sigma{"magnitude_aware": false}',
    "information": "information",
    "curvature": "curvature",
    "perturbation": 'response_curve{"layer": 0, "pairs": "intra"}',
    "sharpness": 'weight_noise{"kind": "tensor"}',
    "gradient": "gradient_noise",
    "function_space": "log_evidence",
    "compression": "own: codes",
    "spectral": "own: singular values",
}
"""Category to what a measure of it that nobody has read before is taken to need: a plugin's."""


def parts_of(measure: Measure) -> frozenset[str]:
    """Names of the parts that a measure takes, of `genbench`'s own; what it is like, of another."""
    found = frozenset(part for part, users in _USED_BY.items() if measure.name in users.split())
    if found:
        return found
    looks = {"logits"} if "training_data" in measure.needs else set[str]()
    like = _LIKE.get(measure.category)
    return frozenset(looks | {like} if like and (looks or not _PARTS[like].images) else looks)


@dataclass(frozen=True)
class ReadingCosts:
    """Of the readings that are left."""

    seconds: Mapping[str, float]
    """Key to processor seconds; what readings of a network share counts with the first of them."""
    forward_passes: int
    memory_bytes: int


def reading_costs(plan: Plan, left: Iterable[Cell], past: Mapping[str, PastReading]) -> ReadingCosts:
    """What the readings among the cells `left` will take."""
    missing = {cell.key for cell in left}
    kind, seconds, images, memory = kind_of(plan.suite), {}, 0.0, 0
    measures: list[Measure] = [entry.item for entry in plan.measures]
    parts = {one.name: parts_of(one) for one in measures}
    for network in plan.evidence.networks:
        wanted = [one.name for one in measures if _is_left(plan, one.name, network.label, missing)]
        if not wanted:
            continue
        unit = kind.training_pass(plan.suite, network)
        needed = {name: parts[name] for name in wanted}
        shared = shared_seconds(needed, unit, past)
        images += _IMAGES_PER_PASS * sum(_PARTS[part].passes(unit.images) for part in _union(needed))
        for place, name in enumerate(wanted):
            own = past[name].seconds if name in past else 0.0
            first = 0.0 if place else shared + _LOADED_SECONDS
            seconds[plan.readings[name, network.label].key] = own + _ENGINE_SECONDS + first
            memory = max(memory, past[name].peak_bytes if name in past else reading_memory(parts[name], unit))
    return ReadingCosts(seconds, int(images), memory)


def _is_left(plan: Plan, measure: str, network: str, missing: set[str]) -> bool:
    """Whether it is still to be computed; a plan may leave out networks."""
    cell = plan.readings.get((measure, network))
    return cell is not None and cell.key in missing


def reading_memory(parts: Iterable[str], unit: TrainingPass) -> int:
    """Peak bytes of a reading, counted on `mini` and on networks of 5 to 25 million weights."""
    costs = [_PARTS[part] for part in parts]
    if not any(one.images for one in costs):
        held, copies = 0, 6
    elif max(one.images for one in costs) <= _COSTLY_IMAGES:
        held, copies = min(1800, 4 * unit.images), 6
    else:
        held, copies = min(4000, 10 * unit.images), 25
    return unit.process + copies * 4 * unit.weights + min(_PASS_BYTES, held * unit.kept)


def _union(needed: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*needed.values())


def shared_seconds(
    needed: Mapping[str, frozenset[str]], unit: TrainingPass, past: Mapping[str, PastReading]
) -> float:
    """Of all parts of a network that measures need, each once.

    A past reading says what all its parts took: each of them is given its share of that.
    """
    each = unit.seconds / max(1, unit.images)
    told = {part: _PARTS[part].seconds + each * _PARTS[part].passes(unit.images) for part in _union(needed)}
    seen: dict[str, list[float]] = {}
    unknown = 0.0
    for name, parts in needed.items():
        if name not in past:
            continue
        model = sum(told[part] for part in parts)
        if not model:
            unknown = max(unknown, past[name].shared_seconds)
        for part in parts if model else ():
            seen.setdefault(part, []).append(past[name].shared_seconds * told[part] / model)
    return unknown + sum(median(seen[part]) if part in seen else told[part] for part in told)
