// Which of a page's two languages is shown: the switch, and a word on the address (#zh) or the last choice.
{
  const nav = document.querySelector("nav.languages");
  if (nav) {
    const titles = JSON.parse(nav.dataset.titles);
    const show = (language) => {
      document.documentElement.lang = language;
      document.title = titles[language];
      for (const button of nav.children) button.setAttribute("aria-pressed", String(button.dataset.to === language));
      document.dispatchEvent(new CustomEvent("language", { detail: language }));
    };
    nav.addEventListener("click", (event) => event.target.dataset.to && show(event.target.dataset.to));
    const asked = location.hash.slice(1);
    show(asked in titles ? asked : document.documentElement.lang);
  }
}
