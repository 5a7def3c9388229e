"""What a page shows: the exact figures of a table, what is cut off, and the words without
scrolling."""

from playwright.sync_api import FrameLocator

WORDS = r"""(body) => {
      const inside = (box, clip) => {
        const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
        return x >= clip.left && x <= clip.right && y >= clip.top && y <= clip.bottom;
      };
      const screen = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
      const shown = (element, box) => {
        if (box.width < 2 || box.height < 2 || !inside(box, screen)) return false;
        if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
          return false;
        for (let each = element; each && each !== body; each = each.parentElement) {
          const style = getComputedStyle(each);
          if (style.clipPath !== "none") return false;
          if (style.overflow !== "visible" && !inside(box, each.getBoundingClientRect()))
            return false;
        }
        return true;
      };
      // A number and its unit are one figure.
      const pattern =
        /[<>+−±-]?[\d.,]+[\s\u00a0](?:[KMGTP]iB|B|%)(?![\p{L}\p{N}])|[^\s·]*[\p{L}\p{N}][^\s·]*/gu;
      const found = [];
      const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        if (node.parentElement.closest("script, style, option")) continue;
        for (const match of node.data.matchAll(pattern)) {
          // A name that may break behind "_" is one word.
          if (match.index === 0 && node.previousSibling?.nodeName === "WBR") continue;
          const range = document.createRange();
          range.setStart(node, match.index);
          range.setEnd(node, match.index + match[0].length);
          if (shown(node.parentElement, range.getBoundingClientRect())) found.push(match[0]);
        }
      }
      for (const field of body.querySelectorAll(
        "select, input:not([type=checkbox], [type=range])",
      )) {
        const text = field.selectedOptions?.[0]?.text ?? (field.value || field.placeholder);
        if (shown(field, field.getBoundingClientRect())) found.push(...(text.match(pattern) ?? []));
      }
      return found;
    }"""


CUT_OFF = """(body, width) => {
      const shown = (selector) =>
        [...body.querySelectorAll(selector)].filter((e) => e.offsetParent !== null);
      const wider = (e) => e.scrollWidth > e.clientWidth + 1;
      const named = (elements) =>
        elements.map((e) => e.textContent.slice(0, 60) || e.className || e.tagName);
      const boxes =
        "main, .runs, .body, .panel, .picture, .toolbar, .bar, .devices, " +
        ".what-if label, .what-if dd";
      // The table of layers scrolls sideways where it must.
      const parts = shown("button, h2, p, li, table, td, canvas, .layer-scroll").filter(
        (e) => !e.closest(".layer-scroll > *"),
      );
      return [
        ...named([body, ...shown(boxes)].filter(wider)),
        ...named(shown("button:not(.mark, .leads), h2, td:not(.shape)").filter(wider)),
        ...named(parts.filter((e) => e.getBoundingClientRect().right > width + 1)),
      ];
    }"""


def cut_off(frame: FrameLocator, width: int) -> list[str]:
    """What the window, which is so wide, or an element around it cuts off."""
    found: list[str] = frame.locator("body").evaluate(CUT_OFF, width)
    return found


def figures(frame: FrameLocator, table: str) -> dict[str, int]:
    """The exact bytes of a table's rows, by their names."""
    rows = frame.locator(f"[data-testid='{table}'] tr[data-bytes]")
    pairs = rows.evaluate_all("rows => rows.map(row => [row.dataset.figure, row.dataset.bytes])")
    return {name: int(value) for name, value in pairs if value != ""}


def words_above_the_fold(frame: FrameLocator, selector: str = "body") -> list[str]:
    """Each word and figure in the window, fields' values included; texts of canvases, such as the
    axes', are not."""
    found: list[str] = frame.locator(selector).evaluate(WORDS)
    return found


def text_of(frame: FrameLocator, selector: str) -> str:
    """A text on the first screen, with plain blanks."""
    place = frame.locator(selector)
    box = place.bounding_box()
    assert box is not None and box["y"] + box["height"] <= 900, (
        f"{selector} is not on the first screen"
    )
    return place.inner_text().replace("\u00a0", " ")
