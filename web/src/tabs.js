import { byId } from './dom.js';

/**
 * The views as tabs: the arrow keys, Home and End move, one panel shows. Its name is in the address, so that a reload
 * comes back to it.
 * @param {string[]} names
 * @param {(name: string) => void} onShow
 */
export function setUpTabs(names, onShow) {
  const tabs = names.map((name) => /** @type {HTMLButtonElement} */ (byId(`tab-${name}`)));

  /** @param {string} name */
  function show(name) {
    for (const [index, tab] of tabs.entries()) {
      const selected = names[index] === name;
      tab.setAttribute('aria-selected', String(selected));
      tab.tabIndex = selected ? 0 : -1;
      byId(`view-${names[index]}`).hidden = !selected;
    }
    history.replaceState(history.state, '', `#${name}`);
    onShow(name);
  }

  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener('click', () => show(/** @type {string} */ (names[index])));
    tab.addEventListener('keydown', (event) => {
      const last = names.length - 1;
      const next = {
        ArrowRight: index === last ? 0 : index + 1,
        ArrowLeft: index === 0 ? last : index - 1,
        Home: 0,
        End: last,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(/** @type {string} */ (names[next]));
      tabs[next]?.focus();
    });
  }
  const named = location.hash.slice(1);
  return { show, first: names.includes(named) ? named : /** @type {string} */ (names[0]) };
}
