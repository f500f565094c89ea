// What is wrong with the page as it is laid out: a list of sentences. Run inside the page.
(function () {
  "use strict";
  var wrong = [], slack = 1.5;
  function name(element) {
    var text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60);
    return element.tagName.toLowerCase() + (element.id ? "#" + element.id : "") + " '" + text + "'";
  }
  function boxes(elements) {
    return elements.map(function (e) { return { e: e, r: e.getBoundingClientRect() }; })
      .filter(function (b) { return b.r.width > 0 && b.r.height > 0; });
  }
  function over(a, b, by) {
    return Math.min(a.right, b.right) - Math.max(a.left, b.left) > by &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
  }
  var width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    wrong.push("the page is " + document.documentElement.scrollWidth + " px wide in a window of " + width);
  }

  // blocks of the page: none outside the window, none over another
  var blocks = boxes(Array.from(document.querySelectorAll(
    "h1, h2, h3, p, dl, ul, nav, .scroll, .plot, figcaption, footer")));
  blocks.forEach(function (b, i) {
    if (b.r.left < -slack || b.r.right > width + slack) { wrong.push(name(b.e) + " leaves the window"); }
    blocks.slice(i + 1).forEach(function (c) {
      if (!b.e.contains(c.e) && !c.e.contains(b.e) && over(b.r, c.r, slack)) {
        wrong.push(name(b.e) + " lies over " + name(c.e));
      }
    });
  });

  // text that its own box cuts off, outside boxes that scroll
  document.querySelectorAll("h1, h2, h3, p, li, dt, dd, a, caption, td, th, button, code, figcaption, .badge")
    .forEach(function (e) {
      var style = getComputedStyle(e);
      if (style.overflow !== "visible" && (e.scrollWidth > e.clientWidth + slack || e.scrollHeight > e.clientHeight + slack)) {
        wrong.push(name(e) + " is cut off");
      }
      if (style.display !== "inline" && style.overflow === "visible" && e.clientWidth && e.scrollWidth > e.clientWidth + slack) {
        wrong.push(name(e) + " runs out of its box");
      }
      if (parseFloat(style.fontSize) < 11) { wrong.push(name(e) + " is set in " + style.fontSize); }
    });
  document.querySelectorAll("table").forEach(function (table) {
    boxes(Array.from(table.querySelectorAll("th, td"))).forEach(function (cell) {
      var range = document.createRange();
      range.selectNodeContents(cell.e);
      var text = range.getBoundingClientRect();
      if (text.width && (text.left < cell.r.left - slack || text.right > cell.r.right + slack)) {
        wrong.push("in table " + table.id + " " + name(cell.e) + " runs over its cell");
      }
    });
  });

  // figures: drawn, inside their frame, and no two level labels of one over each other
  document.querySelectorAll("figure").forEach(function (figure) {
    var svg = figure.querySelector("svg");
    if (!svg) { wrong.push(figure.id + " has no drawing"); return; }
    var frame = svg.getBoundingClientRect();
    if (frame.width < 200 || frame.height < 100) { wrong.push(figure.id + " is " + frame.width + " x " + frame.height); }
    if (svg.querySelectorAll("path").length < 10) { wrong.push(figure.id + " is empty"); }
    var texts = Array.from(svg.querySelectorAll("g[id]")).filter(function (g) { return /-text_\d+$/.test(g.id); });
    if (!texts.length) { wrong.push(figure.id + " has no text"); }
    var placed = boxes(texts);
    placed.forEach(function (b, i) {
      if (b.r.left < frame.left - slack || b.r.right > frame.right + slack || b.r.top < frame.top - slack || b.r.bottom > frame.bottom + slack) {
        wrong.push(figure.id + ": " + b.e.id + " leaves the figure");
      }
      if (turned(b.e)) { return; }
      placed.slice(i + 1).forEach(function (c) {
        if (!turned(c.e) && over(b.r, c.r, slack * frame.width / 600)) {
          wrong.push(figure.id + ": " + b.e.id + " lies over " + c.e.id);
        }
      });
    });
  });
  function turned(g) {
    var inner = g.querySelector("g[transform]"), match = inner && /rotate\((-?[\d.]+)/.exec(inner.getAttribute("transform"));
    return !!match && Math.abs(parseFloat(match[1])) > 0.5;
  }

  // colours: text apart from what is behind it, by the ratio of WCAG
  function luminance(colour) {
    return colour.slice(0, 3).map(function (v) { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); })
      .reduce(function (sum, v, i) { return sum + v * [0.2126, 0.7152, 0.0722][i]; }, 0);
  }
  function rgb(text) { return text.match(/[\d.]+/g).map(Number); }
  function behind(e) {
    for (; e; e = e.parentElement) {
      var c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) { return c; }
    }
    return [255, 255, 255];
  }
  var told = {};
  document.querySelectorAll("h1, p, li, dt, dd, a, caption, td, th, button, figcaption, .badge, footer").forEach(function (e) {
    var colour = getComputedStyle(e).color, back = behind(e), key = colour + back;
    var a = luminance(rgb(colour)), b = luminance(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5 && !told[key]) { told[key] = 1; wrong.push(name(e) + " has a contrast of " + ratio.toFixed(2)); }
  });
  return wrong;
})()
