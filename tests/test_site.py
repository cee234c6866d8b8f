"""The leaderboard's web site: as files, and in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import pytest
from browsers import start_browser
from population_records import population_evidence
from shown_boards import ShownBoards

from genbench.leaderboard.build import SITE_LIMIT

pytestmark = pytest.mark.xdist_group("site")  # one browser at a time

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


@pytest.fixture(scope="module")
def site(shown_boards: ShownBoards) -> Path:
    found = shown_boards.folders.site
    assert found is not None
    return found


# -- as files ----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Elements of a page; every one must be closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_whole_and_ask_nothing_of_another_host(site) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 2 + (2 + 8) + (2 + 4)
    for path in pages:
        found = Page(path).elements
        ids = [attributes["id"] for _, attributes in found if "id" in attributes]
        assert len(ids) == len(set(ids))
        for tag, attributes in found:
            assert not any(name.startswith("on") for name in attributes), "no script in an attribute"
            for name in ("src", "href"):
                target = (attributes.get(name) or "").partition("#")[0] or None
                if target is None or target.startswith(("#", "data:")):
                    continue
                if target.startswith("https://arxiv.org/"):
                    assert tag == "a", "a link that a person may follow, nothing that loads by itself"
                    continue
                assert (path.parent / target).resolve().is_file(), f"{path}: {target}"
                assert (path.parent / target).resolve().is_relative_to(site.resolve())
        scripts = [attributes for tag, attributes in found if tag == "script"]
        assert all("src" in script or script.get("type") == "application/json" for script in scripts)


def test_hostile_texts_are_harmless_in_html(site) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script>document" not in text
        assert "<b onmouseover" not in text
        assert "<i>5</i>" not in text


def test_every_figure_has_a_label_and_its_numbers_as_a_table(site) -> None:
    for path in site.rglob("*.html"):
        found = Page(path).elements
        plots = [attributes for _, attributes in found if attributes.get("class") == "plot"]
        assert all(plot["role"] == "img" and "table" in str(plot["aria-label"]) for plot in plots)
        heads = [attributes for tag, attributes in found if tag == "th"]
        assert all("scope" in head for head in heads)


def drawn(site: Path) -> dict[str, Any]:
    """What the figure of all sign-errors of the testbed's board shows."""
    text = (site / "mini" / "index.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="errors">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def test_the_board_of_a_testbed_has_every_recorded_sign_error(site) -> None:
    found = [json.loads(path.read_text("utf-8")) for path in (site.parent / "records/mini").iterdir()]
    scores = {record["measure"]["name"]: record["sign_error"] for record in found}
    data, names = drawn(site), {"mean": "M", "sd": "SD", "p10": "P10"}
    scored = {name: score for name, score in scores.items() if score is not None}
    assert data["measures"] == sorted(scored, key=lambda name: (scored[name]["value"], name))
    assert "silent" not in data["measures"]
    shown = {
        (panel["title"].replace("-", "_"), one["family"], one["statistic"], measure): value
        for panel in data["panels"]
        for one in panel["series"]
        for measure, value in zip(data["measures"], one["values"], strict=True)
        if value is not None
    }
    recorded = {
        (part["slice"], part["family"], names[part["statistic"]], measure): part["value"]
        for measure, score in scored.items()
        for part in score["parts"]
    }
    assert shown == pytest.approx(recorded, abs=1e-4)
    assert not [key for key in shown if key[3] == "clip_only" and "clip" not in key[1]]
    for panel in data["panels"]:
        for statistic, share in panel["above"].items():
            part = (panel["title"].replace("-", "_"), statistic)
            errors = [value for key, value in recorded.items() if (key[0], key[2]) == part]
            assert share == pytest.approx(sum(value > 0.5 for value in errors) / len(errors), abs=1e-4)


def test_the_front_page_shows_the_best_of_both_suites(site) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    for link in (
        "mini/measures/first.html",
        "nin-fashion/measures/near_the_gap.html",
        "nin-fashion/evidence.html",
    ):
        assert f'href="{link}"' in text
    assert '<th scope="row">silent</th><td class="soft" data-value="">no score</td>' in text


def test_the_site_is_small_and_plotly_is_in_it_once(site) -> None:
    files = [path for path in site.rglob("*") if path.is_file()]
    assert sum(p.stat().st_size for p in files if p.parent.name != "data") < SITE_LIMIT
    populations = (site / "nin-fashion" / "measures").iterdir()
    assert max(path.stat().st_size for path in populations) < 40_000, (
        "1,280 readings each, of some 90 measures"
    )
    plotly = [path for path in files if b"plotly.js (" in path.read_bytes()[:200]]
    assert [path.name for path in plotly] == ["plotly.min.js"]
    assert b"MIT license" in plotly[0].read_bytes()[:300]


# -- in a browser ------------------------------------------------------------------------------------


DRAWN = """
return document.readyState === "complete"
  && [...document.querySelectorAll(".plot")].every(plot => plot.querySelector(".main-svg"))
"""


def wait(driver: Any, until: Callable[[], bool]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 30).until(lambda _: until())


def open_controls(browser: Any) -> list[Any]:
    """The boxes for the columns of a board."""
    browser.find_element("css selector", "#controls summary").click()
    boxes = browser.find_elements("css selector", "#columns label")
    wait(browser, lambda: all(box.is_displayed() for box in boxes))
    return boxes


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    started = start_browser("--window-size=1400,1000", loggingPrefs={"browser": "ALL", "performance": "ALL"})
    visit = started.get

    def get(url: str) -> None:
        """Until the page's figures are drawn, which on a busy machine is after it has loaded."""
        visit(url)
        wait(started, lambda: started.execute_script(DRAWN))

    with mock.patch.object(started, "get", get):
        yield started
    started.quit()


@pytest.fixture
def browser(driver) -> Iterator[Any]:
    """The browser; afterwards, nothing on the console and no request to another host."""
    driver.get("about:blank")
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    yield driver
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert asked
    assert [
        url for url in asked if not re.match(r"file://|data:|blob:|about:|http://127\.0\.0\.1:", url)
    ] == []


def shown(browser: Any) -> list[str]:
    """Names of the measures in the table, as they stand."""
    rows = browser.find_elements("css selector", "table.board tbody tr")
    return [row.find_element("css selector", "th a").text for row in rows if row.is_displayed()]


def column(browser: Any, place: int) -> list[str]:
    cells = browser.find_elements("css selector", f"table.board tbody tr > :nth-child({place})")
    return [cell.text for cell in cells]


def press(browser: Any, text: str) -> Any:
    heads = browser.find_elements("css selector", "table.board thead button")
    head = next(head for head in heads if head.text.strip().split(" ")[0] == text)
    head.send_keys("\ue007")  # Enter: the table is sorted by keyboard
    return head


def test_sorting(browser, site) -> None:
    browser.get((site / "mini" / "index.html").as_uri())
    ranked = shown(browser)
    assert len(ranked) == 8
    head = press(browser, "sign-error")
    values = [float(text) for text in column(browser, 4) if text]
    assert values == sorted(values)
    assert head.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"
    press(browser, "sign-error")
    values = [float(text) for text in column(browser, 4) if text]
    assert values == sorted(values, reverse=True)
    assert shown(browser)[-1] == "silent", "what has no value is last either way"
    press(browser, "measure")
    assert shown(browser) == sorted(ranked)
    assert "sorted by measure" in browser.find_element("id", "said").text


def test_filtering_keeps_the_baselines(browser, site) -> None:
    from selenium.webdriver.support.select import Select

    browser.get((site / "mini" / "index.html").as_uri())
    browser.find_element("id", "search").send_keys("first")
    assert set(shown(browser)) == {"first", "baseline_size"}
    assert "1 of 8" in browser.find_element("id", "said").text
    browser.find_element("id", "search").clear()
    browser.find_element("id", "search").send_keys("x\ue003")
    family = Select(browser.find_element("id", "family"))
    assert "margin" in [option.text for option in family.options]
    family.select_by_visible_text("margin")
    assert set(shown(browser)) == {"first", "baseline_size"}
    family.select_by_visible_text("all")
    assert len(shown(browser)) == 8


def test_hiding_columns(browser, site) -> None:
    browser.get((site / "mini" / "index.html").as_uri())
    boxes = open_controls(browser)
    labels = [box.text for box in boxes]
    assert "seconds" in labels
    assert "measure" not in labels
    heads = lambda: [  # noqa: E731
        head.text.split(" ")[0]
        for head in browser.find_elements("css selector", "table.board thead th")
        if head.is_displayed()
    ]
    assert "seconds" in heads()
    boxes[labels.index("seconds")].click()
    assert "seconds" not in heads()
    boxes[labels.index("seconds")].click()
    assert "seconds" in heads()


def test_a_board_draws_every_sign_error(browser, site) -> None:
    browser.get((site / "mini" / "index.html").as_uri())
    series = [one for panel in drawn(site)["panels"] for one in panel["series"]]
    points = browser.find_elements("css selector", "[data-kind=errors] .scatterlayer .point")
    assert len(points) == sum(value is not None for one in series for value in one["values"])
    text = browser.find_element("css selector", "[data-kind=errors]").get_attribute("textContent")
    assert all(f"{s} of error, mini-clip" in text for s in ("M", "SD", "P10"))
    assert "path_norm" in text
    browser.get((site / "nin-fashion" / "index.html").as_uri())
    assert not browser.find_elements("css selector", ".plot")


def test_a_measure_page(browser, site) -> None:
    browser.get((site / "mini" / "index.html").as_uri())
    browser.find_element("link text", "path_norm").click()
    assert browser.find_element("tag name", "h1").text == "path_norm"
    assert browser.find_elements("css selector", ".plot .scatterlayer .point")
    text = browser.find_element("tag name", "main").text
    assert "genbench reproduce leaderboards/mini.json#path_norm" in text
    assert "In search of robust measures" in text
    assert "errs less than" in text


def test_a_suite_page(browser, site) -> None:
    from selenium.webdriver.support.select import Select

    browser.get((site / "mini" / "index.html").as_uri())
    browser.find_element("partial link text", "judged against").click()
    plots = browser.find_elements("css selector", ".plot")
    assert [plot.get_attribute("data-kind") for plot in plots] == ["marginals", "heatmaps"] * 4
    assert all(plot.find_elements("css selector", ".main-svg") for plot in plots)
    assert len(browser.find_elements("css selector", "[data-from=family-1] .heatmaplayer image")) == 8
    Select(browser.find_element("id", "family-1-statistic")).select_by_visible_text("kappa, M")
    bar = browser.find_element("css selector", "[data-kind=heatmaps][data-from=family-1]")
    assert "kappa, M" in bar.get_attribute("textContent")
    assert "Trade-off point" in browser.find_element("tag name", "main").text


def test_a_testbeds_heat_maps_are_tables_too(browser, site) -> None:
    from selenium.webdriver.support.select import Select

    browser.get((site / "mini" / "evidence.html").as_uri())
    Select(browser.find_element("id", "family-1-statistic")).select_by_visible_text("kappa, SD")
    tables = browser.find_elements("css selector", "[data-table=heatmaps][data-from=family-1] table")
    assert len(tables) == 8, "one per model"
    shown_numbers = tables[0].find_elements("css selector", "td")
    data = browser.execute_script("return JSON.parse(document.getElementById('family-1').textContent)")
    texts = [float(cell.get_attribute("textContent")) for cell in shown_numbers]
    assert texts == [value for row in data["maps"]["kappa, SD"][0] for value in row]


# -- a population in a browser -----------------------------------------------------------------------


def place_of(browser: Any, label: str) -> int:
    """The column with this heading, from 1."""
    heads = browser.find_elements("css selector", "table.board thead th")
    return [head.get_attribute("data-label") for head in heads].index(label) + 1


def test_a_populations_board_sorts_by_any_score(browser, site) -> None:
    browser.get((site / "nin-fashion" / "index.html").as_uri())
    assert shown(browser)[0] == "near_the_gap"
    assert shown(browser)[-1] == "silent"
    place = place_of(browser, "Ψ OOD")
    button = browser.find_element("css selector", f"table.board thead th:nth-child({place}) button")
    assert "shifted images" in button.get_attribute("title")
    for descending in (False, True):
        button.send_keys("\ue007")
        values = [float(text) for text in column(browser, place) if text]
        assert len(values) == 3
        assert values == sorted(values, reverse=descending)
        assert shown(browser)[-1] == "silent", "what has no value is last either way"
    assert column(browser, place_of(browser, "readings"))[-1] == "0 of 1280"


def test_a_populations_board_hides_a_score_and_explains_its_columns(browser, site) -> None:
    browser.get((site / "nin-fashion" / "index.html").as_uri())
    place = place_of(browser, "PGDL")
    cell = browser.find_element("css selector", f"table.board tbody td:nth-child({place})")
    assert cell.is_displayed()
    boxes = open_controls(browser)
    next(box for box in boxes if box.text == "PGDL").click()
    assert not cell.is_displayed()
    legend = browser.find_element("css selector", ".legend")
    legend.find_element("css selector", "summary").click()
    for column_shown in population_evidence().columns:
        assert f"{column_shown.label}: {column_shown.about}" in legend.text


@pytest.mark.parametrize(("width", "moves"), [(1400, "window"), (420, "document.querySelector('.long')")])
def test_the_headings_of_a_long_board_stay_in_view(browser, site, width, moves) -> None:
    browser.set_window_size(width, 500)
    try:
        browser.get((site / "nin-fashion" / "index.html").as_uri())
        # A few rows are not long; copies are.
        browser.execute_script(
            "const body = document.querySelector('.board tbody');"
            "for (let k = 0; k < 30; k++) body.append(body.rows[0].cloneNode(true));"
            f"document.querySelector('.long').scrollIntoView(); {moves}.scrollBy(0, 400);"
        )
        top = "return document.querySelector('.board thead th').getBoundingClientRect().top"
        assert -1 <= browser.execute_script(top) < 100
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), (
            "no page scroll"
        )
    finally:
        browser.set_window_size(1400, 1000)


def test_rows_of_the_front_page_have_one_height_on_a_phone(browser, site) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get((site / "index.html").as_uri())
        script = "return [...document.querySelectorAll('.matrix tbody tr')].map(row => row.offsetHeight)"
        heights = browser.execute_script(script)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(heights) > 3
    assert max(heights) - min(heights) <= 1, heights


def test_a_populations_measure_page(browser, site) -> None:
    from selenium.webdriver.support.select import Select

    browser.get((site / "nin-fashion" / "index.html").as_uri())
    browser.find_element("link text", "near_the_gap").click()
    scatter = browser.find_element("css selector", "[data-kind=gaps]")
    fills = "return [...arguments[0].querySelectorAll('.points path')].map(m => getComputedStyle(m).fill)"
    colours = lambda: set(browser.execute_script(fills, scatter))  # noqa: E731
    networks = population_evidence().rows.values()
    assert len(scatter.find_elements("css selector", ".points path")) == len(networks)
    assert "train_size 96" in scatter.text
    two = colours()
    Select(browser.find_element("id", "colour")).select_by_visible_text("width")
    assert "width 14" in scatter.text
    assert len(colours()) == len(two) + 1
    Select(browser.find_element("id", "colour")).select_by_visible_text("none")
    assert "width" not in scatter.text
    lines = browser.find_element("css selector", "[data-kind=environments]")
    assert len(lines.find_elements("css selector", ".scatterlayer .js-line")) == 8 + 1
    assert all(word in lines.text for word in ("all", "mean", "90th percentile", "max", "learning_rate"))
    text = browser.find_element("tag name", "main").text
    assert "leaderboards/records/nin-fashion/near_the_gap.json" in text
    assert "genbench reproduce leaderboards/nin-fashion.json#near_the_gap" in text
    assert "In search of robust measures" in text
    rows = browser.find_elements("css selector", "[data-table=combinations] tbody tr")
    assert len(rows) == 128
    # The 27th combination: what the page averages is what the evidence says.
    suite = population_evidence().suite
    settings = [name for name in suite.varied if name != "seed"]
    combos = list(dict.fromkeys(tuple(point[name] for name in settings) for point in suite.points()))
    point = {f"hp.{name}": value for name, value in zip(settings, combos[26], strict=True)}
    gaps = [n["gap"] for n in networks if n["converged"] and point.items() <= n.items()]
    cells = [cell.get_attribute("textContent") for cell in rows[26].find_elements("css selector", "th, td")]
    assert [float(cell) for cell in cells[:9]] == [*combos[26], len(gaps)]
    assert float(cells[-1]) == pytest.approx(sum(gaps) / len(gaps), abs=6e-4)


def test_a_populations_measures_without_all_values(browser, site) -> None:
    browser.get((site / "nin-fashion" / "measures" / "hostile.html").as_uri())
    assert browser.title == "hostile on nin-fashion · genbench leaderboards"
    text = browser.find_element("tag name", "main").text
    assert "960 of 1280 networks have a value" in text
    assert '320 not applicable: <script>document.title = "owned"</script>' in text
    assert len(browser.find_elements("css selector", "[data-kind=gaps] .points path")) == 960
    assert "Where it fails" in text
    assert browser.find_elements("css selector", "[aria-label='Worst environments'] tbody tr")
    browser.get((site / "nin-fashion" / "measures" / "silent.html").as_uri())
    text = browser.find_element("tag name", "main").text
    assert "No score" in text
    assert "0 of 1280 networks have a value" in text
    assert not browser.find_elements("css selector", ".plot")


def test_a_populations_evidence_page(browser, site) -> None:
    from selenium.webdriver.support.select import Select

    browser.get((site / "nin-fashion" / "index.html").as_uri())
    browser.find_element("partial link text", "judged against").click()
    plots = browser.find_elements("css selector", ".plot")
    assert [plot.get_attribute("data-kind") for plot in plots] == ["boxes", "shift", "severities"]
    boxes, shift, severities = plots
    assert len(boxes.find_elements("css selector", ".boxlayer .trace")) == 3
    Select(browser.find_element("id", "hyperparameter")).select_by_visible_text("width")
    assert len(boxes.find_elements("css selector", ".boxlayer .trace")) == 4
    assert "width" in boxes.text
    Select(browser.find_element("id", "shift")).select_by_visible_text("fog")
    assert "OOD gap, fog" in shift.text
    assert severities.find_elements("css selector", ".heatmaplayer image")
    text = browser.find_element("tag name", "main").text
    assert "genbench pack verify --suite nin-fashion" in text
    networks = [found for found in population_evidence().found.values() if found["converged"]]
    accuracy = fmean(found["shifted_accuracy"]["fog.4"] for found in networks)
    table = browser.find_element("css selector", "[aria-label='Accuracy on corrupted images'] table")
    assert f"{accuracy:.3f}" in table.text
    assert (
        len(browser.find_elements("css selector", "[aria-label='Gap of every combination'] tbody tr")) == 128
    )


def test_a_populations_figures_follow_the_theme(browser, site) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    for page in ("measures/near_the_gap.html", "evidence.html"):
        browser.get((site / "nin-fashion" / page).as_uri())
        browser.find_element("id", "theme").click()
        for title in browser.find_elements("css selector", ".plot .xtitle"):
            assert "223, 229, 236" in title.value_of_css_property("fill")
        browser.execute_script("localStorage.clear()")


# -- everywhere --------------------------------------------------------------------------------------


def test_dark_mode(browser, site) -> None:
    def background() -> str:
        body = browser.find_element("tag name", "body")
        return str(body.value_of_css_property("background-color"))

    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    browser.get((site / "mini" / "measures" / "path_norm.html").as_uri())
    assert "255, 255, 255" in background()
    browser.find_element("id", "theme").click()
    assert "20, 24, 29" in background()
    axis = browser.find_element("css selector", ".plot .xtitle")
    assert "223, 229, 236" in axis.value_of_css_property("fill"), "figures follow"
    browser.get((site / "mini" / "index.html").as_uri())
    assert "20, 24, 29" in background(), "the choice is kept"
    browser.find_element("id", "theme").click()
    assert "255, 255, 255" in background()
    browser.execute_script("localStorage.clear()")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    browser.get((site / "index.html").as_uri())
    assert "20, 24, 29" in background(), "as the system has it"


def test_a_hostile_summary_does_nothing(browser, site) -> None:
    browser.get((site / "mini" / "measures" / "hostile.html").as_uri())
    assert browser.title == "hostile on mini · genbench leaderboards"
    assert '<script>document.title = "owned"</script>' in browser.find_element("tag name", "main").text
    browser.get((site / "mini" / "index.html").as_uri())
    assert browser.title == "mini · genbench leaderboards"


def test_it_works_from_a_host_too(browser, site) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for page in ("mini/measures/path_norm.html", "nin-fashion/measures/near_the_gap.html"):
            browser.get(f"http://127.0.0.1:{server.server_port}/{page}")
            # Files come one by one from a host: figures are drawn when the last of them is there.
            WebDriverWait(browser, 30).until(
                lambda page: page.find_elements("css selector", ".plot .scatterlayer .point")
            )
        server.shutdown()
