"use strict";
// What the page can do beyond links: a story opens when it is gone to, the picture is one stop of the tab key and
// arrow keys move inside it, and what a mark is stands below it.
(() => {
  const open = () => {
    const story = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (story instanceof HTMLDetailsElement) {
      story.open = true;
      story.querySelector("summary").focus({ preventScroll: true });
      story.scrollIntoView({ block: "nearest" });
    }
  };
  addEventListener("hashchange", open);
  open();

  for (const svg of document.querySelectorAll(".map > svg")) {
    const marks = [...svg.querySelectorAll("a.mark")];
    const readout = svg.closest("figure").querySelector(".readout");
    const say = (mark) => { if (readout) readout.textContent = mark.querySelector("title").textContent; };
    const choose = (index) => {
      for (const mark of marks) mark.setAttribute("tabindex", "-1");
      marks[index].setAttribute("tabindex", "0");
    };
    if (marks.length > 0) choose(0);
    svg.addEventListener("focusin", (event) => {
      const mark = event.target.closest("a.mark");
      if (mark) { choose(marks.indexOf(mark)); say(mark); }
    });
    svg.addEventListener("mouseover", (event) => {
      const mark = event.target.closest("a.mark");
      if (mark) say(mark);
    });
    svg.addEventListener("keydown", (event) => {
      const at = marks.indexOf(document.activeElement);
      const last = marks.length - 1;
      const to = {
        ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last,
      }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      marks[Math.min(Math.max(to, 0), last)].focus();
    });
    // The story that is open already is gone to again.
    svg.addEventListener("click", (event) => {
      const mark = event.target.closest("a.mark");
      if (mark && mark.getAttribute("href") === location.hash) { event.preventDefault(); open(); }
    });
  }
})();
