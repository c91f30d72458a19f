#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tab reaches every control of a report, with visible focus, and keys operate it;
printed pages have no controls.

    test_keyboard.py LONGHAUL
"""
import os
import tempfile

import chromium
from pages import check, finish, longhaul, two_sites, write

PIPELINE = two_sites(6, """\
  - {from: 0, to: 1, latency: 0.01, transfer: 0.02}
  - {from: 1, to: 0, latency: 0.01, transfer: 0.02}
  - {from: 1, to: 2, latency: 17, transfer: 2.3, name: forth}
  - {from: 2, to: 1, latency: 19, transfer: 2.9, name: back}
""")
KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37,
        "ArrowDown": 40, " ": 32, "]": 221}


def press(browser, key):
    text = {"Enter": "\r", " ": " ", "]": "]"}.get(key, "")
    codes = {" ": "Space", "]": "BracketRight"}
    shared = {"key": key, "code": codes.get(key, key),
              "windowsVirtualKeyCode": KEYS[key]}
    browser.ask("Input.dispatchKeyEvent", type="keyDown" if text else
                "rawKeyDown", text=text, **shared)
    browser.ask("Input.dispatchKeyEvent", type="keyUp", **shared)


VISIBLE = """[...document.querySelectorAll('button, input, select, summary, ' +
  'canvas[tabindex]')].filter((n) => n.checkVisibility() && !n.disabled)"""
# Records the focused control, and whether the focus is visible; false: none.
REACHED = """(() => {
  const at = document.activeElement;
  if (!at || at === document.body) return false;
  const style = getComputedStyle(at);
  at.dataset.reached = style.outlineStyle !== 'none' &&
    parseFloat(style.outlineWidth) > 0 ? 'seen' : 'unseen';
  return true;
})()"""
NAMES = ("((nodes) => nodes.map((n) => n.id || n.dataset.key || "
         "n.textContent.slice(0, 30) || n.outerHTML.slice(0, 80)))")


def test_tab(browser, path, name):
    browser.open(path)
    browser.wait("document.documentElement.dataset.asking !== '1'")
    for _ in range(browser.run(VISIBLE + ".length") + 20):
        press(browser, "Tab")
        if not browser.run(REACHED):
            break
    missed = browser.run(f"{NAMES}({VISIBLE}.filter((n) => !n.dataset.reached))")
    check(not missed, f"{name}: Tab does not get to {missed}")
    unseen = browser.run(f"{NAMES}({VISIBLE}.filter((n) => "
                         "n.dataset.reached === 'unseen'))")
    check(not unseen, f"{name}: nothing shows the focus of {unseen}")


def focus(browser, selector):
    browser.run(f"document.querySelector('{selector}').focus()")


def test_keys(browser, path, asks):
    browser.open(path)
    browser.wait("document.documentElement.dataset.asking !== '1'")
    focus(browser, "#links .fold")
    for key, folded in (("Enter", True), (" ", False)):
        press(browser, key)
        check(browser.run("document.getElementById('links').classList"
                          ".contains('folded')") == folded,
              f"{key!r} does not fold")
    for button in ("toggle-critical", "toggle-quiet", "toggle-memory"):
        pressed = (f"document.getElementById('{button}')"
                   ".getAttribute('aria-pressed')")
        before = browser.run(pressed)
        focus(browser, "#" + button)
        press(browser, " ")
        check(browser.run(pressed) != before, f"{button} is not pressed")
    focus(browser, "#links th button")
    press(browser, "Enter")
    check(browser.run("document.querySelector('#links th')"
                      ".getAttribute('aria-sort')") == "ascending",
          "a column does not sort")
    tip = "document.getElementById('tip').textContent"
    for name in ("0F0", "0F1"):
        press(browser, "]")
        check(browser.run(tip).startswith(name),
              f"] does not show {name}: {browser.run(tip)}")
    if not asks:
        return
    makespan = "Number(document.documentElement.dataset.makespanNs)"
    done = "document.documentElement.dataset.asking === '0'"
    first = browser.run(makespan)
    focus(browser, "#what-if input[type=range]")
    press(browser, "ArrowRight")
    check(browser.wait(done) and browser.run(makespan) > first,
          "a slider does not move")
    focus(browser, "#ask-reset")
    press(browser, "Enter")
    check(browser.wait(done) and browser.run(makespan) == first,
          "reset does not reset")
    focus(browser, "#what-if summary")
    press(browser, "Enter")
    check(browser.run("document.querySelector('#what-if details').open"),
          "what is folded does not open")


SHOWN = """((selector) => [...document.querySelectorAll(selector)].filter(
  (n) => n.checkVisibility()).length)"""


def test_paper(browser, path, name, there):
    browser.open(path, dark=True)
    browser.wait("document.documentElement.dataset.asking !== '1'")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    check(browser.run("document.documentElement.dataset.theme") == "light",
          f"{name}: dark on paper")
    for selector in (".toolbar", ".top-tools", "#what-if input", "footer",
                     "button:not(.fold):not(th button)"):
        check(browser.run(f"{SHOWN}('{selector}')") == 0,
              f"{name}: {selector} on paper")
    for selector in there:
        check(browser.run(f"{SHOWN}('{selector}')") > 0,
              f"{name}: no {selector} on paper")
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    pdf = browser.ask("Page.printToPDF", landscape=True)["data"]
    check(len(pdf) > 10000, f"{name}: an empty paper")
    browser.ask("Emulation.setEmulatedMedia", media="", features=dark)
    check(browser.run("document.documentElement.dataset.theme") == "dark",
          f"{name}: not dark after printing")


def main():
    path = chromium.find()
    if not path:
        finish("chromium")
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "p.yaml", PIPELINE)
        longhaul(folder, "simulate", "p.yaml", "-s", "zb-h1", "--jitter",
                 "latency=0.5", "--samples", "50", "--trace", "t.json",
                 "--html", "one.html")
        longhaul(folder, "compare", "p.yaml", "-m", "1f1b,zb-h1", "--sweep",
                 "latency=0:2:1", "--html", "many.html")
        with chromium.Browser(path) as browser:
            for name, there in (("one", ("#timeline canvas", "#links table",
                                         "#varied svg", ".card")),
                                ("many", ("#sweeps svg",))):
                page = os.path.join(folder, name + ".html")
                test_tab(browser, page, name)
                test_paper(browser, page, name, there)
            page = os.path.join(folder, "one.html")
            browser.open(page)
            browser.wait("document.documentElement.dataset.asking !== '1'")
            test_keys(browser, page, browser.run(
                "!!document.getElementById('ask-reset')"))
            check(not browser.troubles(), f"troubles: {browser.troubles()}")
    finish()


main()
