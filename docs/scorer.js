// How the search ranks its results: Sphinx's own scores, more for words in a page's title, less for decisions and changes.
var Scorer = {
  score: ([page, title, , , score]) => {
    const query = new URLSearchParams(location.search).get("q") || "";
    const words = query.toLowerCase().split(/\s+/).filter((word) => title.toLowerCase().includes(word));
    return score + 5 * words.length - (/^(adr|project|extending)\//.test(page) ? 10 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
