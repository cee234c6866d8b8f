"""Does a measure see what matters: wrong labels, harder tasks, destroyed images (000, section 5, App. G)?"""

from __future__ import annotations

import math

import numpy as np

from genbench.audit.cases import FITTED, SEEN_OF_ERROR, Case, equal_error, largest_change, mean_of
from genbench.audit.observed import Row, Rows
from genbench.audit.statistics import FLOORS, clear_trend

__all__ = ["label_cases", "pixel_cases", "task_cases"]

_LEAST_BLIND = math.log(1.01)
"""A change below is none."""


def label_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """Trends of C with the share of wrong labels, by recipe."""
    fitted = [row for row in rows.rows if row.truth.kept.train_accuracy >= FITTED]
    equal = [
        row
        for share in rows.values("share")
        for row in equal_error([row for row in fitted if row["share"] == share])
    ]
    trends = {}
    for recipe in rows.recipes:
        by_share: dict[float, list[Row]] = {}
        for row in equal:
            if row.recipe == recipe:
                by_share.setdefault(float(row["share"]), []).append(row)
        if len(by_share) < 3:
            continue
        shares = sorted(by_share)
        means = [mean_of(by_share[share]) for share in shares]
        y, floors = zip(*means, strict=True)
        first, last = by_share[shares[0]], by_share[shares[-1]]
        errors = [math.log(max(float(np.mean([r.error for r in some])), 1e-3)) for some in (first, last)]
        beyond = max(0.0, abs(y[-1] - y[0]) - FLOORS * math.hypot(floors[0], floors[-1]))
        trend = clear_trend(shares, y, floors)
        numbers |= {f"{recipe}: tau": trend.tau, f"{recipe}: rho": y[-1] - y[0]}
        trends[recipe] = (trend, beyond, errors[1] - errors[0], (first[0].label, last[0].label))
    if len(trends) < 2:
        return "fewer than two recipes fit the noisy labels"
    taus = {recipe: trend.tau for recipe, (trend, *_) in trends.items()}
    low, high = min(taus, key=lambda r: taus[r]), max(taus, key=lambda r: taus[r])
    said = f"tau = {taus[low]:+.2f} ({low}), {taus[high]:+.2f} ({high})"
    if taus[low] < 0 < taus[high]:
        return [Case("fragile", f"trend flips: {said}", taus[high] - taus[low], trends[low][3])]
    if all(beyond < SEEN_OF_ERROR * moved for _, beyond, moved, _ in trends.values()):
        most = max(beyond for _, beyond, _, _ in trends.values())
        return [Case("blind", f"does not see label noise: {said}", most, trends[high][3])]
    if all(tau == 1 for tau in taus.values()):
        return [Case("robust", "grows with the share under every recipe", 1.0, trends[high][3])]
    return [Case("fragile", f"does not grow with the share: {said}", taus[low], trends[low][3])]


def task_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """The order of tasks by C against that by error, and how far C moves over tasks."""
    taus, seen, pair = [], [], None
    for n in rows.values("n"):
        groups = {task: some for task in rows.values("task") if (some := rows.where(n=n, task=task))}
        if len(groups) < 3:
            continue
        y, floors = zip(*(mean_of(some) for some in groups.values()), strict=True)
        errors = [float(np.mean([row.error for row in some])) for some in groups.values()]
        logs = [math.log(max(error, 0.5 / rows.rows[0].truth.test_size)) for error in errors]
        trend = clear_trend(errors, y, floors)
        taus.append(trend.tau_of_all)
        noise = FLOORS * math.hypot(*sorted(floors)[-2:])
        seen.append(max(0.0, max(y) - min(y) - noise) / (max(logs) - min(logs)))
        ordered = [
            some[0].label for _, some in sorted(zip(errors, groups.values(), strict=True), key=lambda g: g[0])
        ]
        pair = (ordered[0], ordered[-1])
        numbers[f"n = {n}: tau"] = trend.tau_of_all
    if not taus:
        return "fewer than three tasks have readings"
    tau, share = float(np.mean(taus)), float(np.mean(seen))
    numbers |= {"tau": tau, "spread of log C / spread of log error": share}
    if share < SEEN_OF_ERROR:
        return [Case("blind", f"moves {share:.2g} of what the error does over tasks", share, pair)]
    if tau < 0.5:
        return [Case("fragile", f"misses the order of tasks: tau = {tau:+.2f}", tau, pair)]
    return [Case("robust", f"orders tasks as their errors: tau = {tau:+.2f}", tau, pair)]


def pixel_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """How far destroyed images move C, against how far training choices do."""
    cases = []
    for net in rows.values("net"):
        data = {p: rows.where(net=net, pixels=p) for p in rows.values("pixels")}
        plain, shared, own = (
            {(row.recipe, row["kept"]): row for row in data.get(name, [])}
            for name in ("as they are", "one order", "own orders")
        )
        both = sorted(plain.keys() & own.keys())
        if len(both) < 2:
            continue
        signal = float(np.mean([own[key].y - plain[key].y for key in both]))
        noise = FLOORS * float(np.mean([math.hypot(own[k].floor, plain[k].floor) for k in both]))
        spreads = [largest_change(equal_error(list(some.values()))) for some in (plain, own) if len(some) > 1]
        spread = float(np.mean([size for size, _ in spreads]))
        order = [abs(shared[key].y - plain[key].y) for key in both if key in shared]
        numbers |= {f"{net}: d_I": signal, f"{net}: V": spread}
        if order:
            numbers[f"{net}: d_S"] = float(np.mean(order))
        pair = (plain[both[0]].label, own[both[0]].label)
        said = f"{net}: d_I = {signal:+.2f}, V = {spread:.2f}"
        if spread > 0 and spread > signal + noise / math.sqrt(len(both)):
            cases.append(
                Case(
                    "fragile",
                    f"{said}: training choices move it more",
                    spread - signal,
                    max(spreads)[1] or pair,
                )
            )
        elif signal <= noise + _LEAST_BLIND:
            cases.append(Case("blind", f"{said}: does not see destroyed images", signal, pair))
        else:
            cases.append(Case("robust", said, signal, pair))
    return cases or "too few networks have readings"
