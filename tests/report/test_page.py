"""The page in a real browser: everything is drawn, acts, and is readable, and nothing is fetched."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from documented import HOSTILE

from infoform.report.charts import DARK, INK

VISIBLE = "one => one.getClientRects().length > 0"
POINTS = """box => ({
    traces: box.data.map(trace => (trace.x || []).length),
    marks: box.querySelectorAll('.point, .points path, .scatterlayer .js-line, .hm image').length,
    width: box.querySelector('.main-svg').clientWidth,
})"""
CONTRAST = """() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = one => {
        for (let at = one; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (!colour.startsWith('rgba(0, 0, 0, 0')) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    return Array.from(document.querySelectorAll('p, li, td, th, h1, h2, h3, h4, summary, .value, button, label'))
        .filter(one => one.getClientRects().length && !one.closest('.plotly-notifier')).map(one => {
            const pair = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
            return [(pair[0] + 0.05) / (pair[1] + 0.05), one.textContent.slice(0, 40)];
        }).sort((a, b) => a[0] - b[0])[0];
}"""


@contextmanager
def opened(browser: Any, address: str, **how: Any) -> Iterator[Any]:
    """Open a page, of which no error, warning, dialog or request may come."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **how})
    context.set_default_timeout(120_000)  # a busy machine takes its time
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: _refuse(dialog, heard))
    page.on("request", lambda request: heard.append(f"request: {request.url[:100]}") if _far(request.url) else None)
    page.goto(address)
    try:
        yield page
    finally:
        context.close()
    assert heard == []


@pytest.fixture(scope="module")
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    """The page as most people see it; tests leave it in any state."""
    with opened(browser, page_file.as_uri(), color_scheme="light") as shown:
        yield shown


@pytest.fixture(scope="module")
def dark_page(browser: Any, page_file: Path) -> Iterator[Any]:
    with opened(browser, page_file.as_uri(), color_scheme="dark") as shown:
        yield shown


def _refuse(dialog: Any, heard: list[str]) -> None:
    heard.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _far(address: str) -> bool:
    return not address.startswith(("file:", "data:", "blob:"))


def _specs(page: Any) -> dict[str, Any]:
    texts = page.eval_on_selector_all(
        "script[id$='-spec']", "all => all.map(one => [one.id.replace('-spec', ''), one.textContent])"
    )
    return {name: json.loads(text) for name, text in texts}


def test_every_chart_of_every_tab_is_drawn_with_its_points(page: Any) -> None:
    specs = _specs(page)
    drawn: set[str] = set()
    assert len(specs) > 20
    for tab in page.query_selector_all("[role=tab]"):
        tab.click()
        for box in page.query_selector_all(".panel:not([hidden]) .chart"):
            name = box.get_attribute("id")
            found = box.evaluate(POINTS)
            assert found["traces"] == [len(trace["x"]) for trace in specs[name]["data"]], name
            assert sum(found["traces"]) > 0, name
            assert found["marks"] > 0, name
            assert found["width"] > 300, name
            drawn.add(name)
    assert drawn == set(specs)


def test_tabs_show_one_panel_each_and_take_the_arrow_keys(page: Any) -> None:
    tabs = page.locator("[role=tab]")
    assert tabs.all_inner_texts() == ["Compare", "inf", "diag", "diabetes"]
    for number in range(4):
        tabs.nth(number).click()
        shown = page.eval_on_selector_all(".panel", f"all => all.map({VISIBLE})")
        assert shown == [at == number for at in range(4)]
        assert tabs.nth(number).get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowRight")  # round to the first
    assert tabs.nth(0).get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    assert page.locator("#panel-4").is_visible()


def test_sliders_change_their_sentence_and_their_chart(page: Any) -> None:
    specs = _specs(page)
    seen = 0
    for tab in page.query_selector_all("[role=tab]"):
        tab.click()
        for slider in page.query_selector_all(".panel:not([hidden]) .slider input"):
            name = slider.get_attribute("data-chart")
            steps = specs[name]["steps"]
            for at in (0, len(steps) // 2, len(steps) - 1):
                slider.evaluate(
                    "(one, at) => { one.value = at; one.dispatchEvent(new Event('input', {bubbles: true})); }", at
                )
                label, sentence, traces = steps[at]
                assert page.locator(f"#{name}-value").inner_text() == label.strip()
                assert page.locator(f"#{name}-told").inner_text() == sentence
                for number, changed in traces.items():
                    for key, value in changed.items():
                        drawn = page.evaluate(f"document.getElementById('{name}').data[{number}].{key}")
                        assert drawn == value
            seen += 1
    assert seen >= 6


def test_a_slider_takes_the_keyboard(page: Any) -> None:
    page.locator("[role=tab]").nth(1).click()
    slider = page.locator("#panel-2 .slider input").first
    before = slider.input_value()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert int(slider.input_value()) == int(before) - 1


def test_the_landscape_zooms_and_hovers(page: Any) -> None:
    page.locator("[role=tab]").nth(1).click()
    chart = page.locator("figure", has_text="Every pair tried").locator(".chart")
    chart.scroll_into_view_if_needed()
    where = chart.locator(".nsewdrag").first.bounding_box()
    middle = where["x"] + where["width"] / 2, where["y"] + where["height"] / 2
    page.mouse.move(*middle)
    page.wait_for_selector(".hoverlayer .hovertext")
    assert "τ = " in page.locator(".hoverlayer .hovertext").first.text_content()
    before = chart.evaluate("box => box.layout.xaxis.range.slice()")
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 60, steps=4)
    page.mouse.up()
    low, high = chart.evaluate("box => box.layout.xaxis.range.slice()")
    assert before[0] < low < high < before[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colours_are_readable_and_the_button_switches(scheme: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue("page" if scheme == "light" else "dark_page")
    brightness = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    font = "document.querySelector('#panel-2 .chart').layout.font.color"
    page.locator("[role=tab]").nth(1).click()
    for expected in (scheme, "light" if scheme == "dark" else "dark", scheme):
        assert (page.evaluate(brightness) > 128) == (expected == "light")
        assert page.evaluate(font) == (INK if expected == "light" else DARK[INK])
        assert page.evaluate(CONTRAST)[0] > 4.5, page.evaluate(CONTRAST)
        page.locator("#theme").click()


def test_a_telephone_shows_it_without_scrolling_sideways(browser: Any, page_file: Path) -> None:
    narrow = {"width": 390, "height": 800}
    with opened(browser, page_file.as_uri() + "#part-3-1", viewport=narrow) as page:
        assert page.locator("#panel-3").is_visible()  # the address names a section of it
        for tab in page.query_selector_all("[role=tab]"):
            tab.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_words_and_tables_are_there(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file.as_uri(), java_script_enabled=False) as page:
        for number in range(1, 5):
            assert page.locator(f"#panel-{number}").is_visible()
        assert page.get_by_text("confidence or more,").first.is_visible()
        assert page.get_by_text("Scripts are off").is_visible()
        assert not page.locator(".chart").first.is_visible()
        assert not page.locator("#theme").is_visible()
        assert page.locator("figure details table").count() == page.locator(".chart").count()
        page.locator("figure details summary").first.click()
        assert page.locator("figure details table").first.is_visible()
        assert page.locator(".gallery img").first.is_visible()


def test_paper_has_all_runs_in_light_colours(dark_page: Any, tmp_path: Path) -> None:
    page = dark_page
    page.locator("[role=tab]").first.click()
    made = page.pdf(path=tmp_path / "page.pdf", format="A4", print_background=True)
    assert made.startswith(b"%PDF")
    assert page.locator("#panel-1").is_visible()  # as before
    assert not page.locator("#panel-2").is_visible()
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert all(page.eval_on_selector_all(".panel", f"all => all.map({VISIBLE})"))
    colours = page.eval_on_selector_all(".chart", "all => all.map(box => box.layout.font.color)")
    assert set(colours) == {INK}
    widths = page.eval_on_selector_all(".chart", "all => all.map(box => box.querySelector('.main-svg').clientWidth)")
    assert max(widths) <= 680


def test_names_that_are_html_are_shown_as_they_are_written(browser: Any, hostile_file: Path) -> None:
    with opened(browser, hostile_file.as_uri()) as page:
        page.wait_for_selector(".chart .main-svg")
        text = page.locator("body").inner_text()
        for name in (*HOSTILE, "<u>run<!--", "<script>alert(4)</script>", "<i>a</i>"):
            assert name in text, name
        assert page.title() == "<script>alert(4)</script>"
        assert page.locator("img[src='x'], u, body b, main i, a[href^='javascript']").count() == 0
        assert page.locator(".chart a").count() == 0
        labels = page.locator(".chart .ytick text").all_text_contents()
        assert any("<b>bold</b>" in label for label in labels)


def test_nothing_in_the_page_points_elsewhere(page_file: Path, hostile_file: Path) -> None:
    from html.parser import HTMLParser

    class Addresses(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [
                value or "" for name, value in attrs if name in ("src", "href", "action", "poster", "srcset")
            ]

    for file in (page_file, hostile_file):
        parser = Addresses()
        parser.feed(file.read_text(encoding="utf-8"))
        assert parser.found
        assert all(address.startswith(("#", "data:image/png;base64,")) for address in parser.found)
