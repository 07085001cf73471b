"""What the page keeps in the browser, as tests read and change it."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page


def with_kept(page: Page, stores: list[str], change: str, argument: object = None) -> Any:
    """The result of the request that `change`, a function of JavaScript, makes of these object stores.

    It comes after the writes that the page has begun.
    """
    code = f"""
    async ([names, argument]) => {{
      const database = await new Promise((resolve, reject) => {{
        const request = indexedDB.open('pageloom');
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      }});
      const transaction = database.transaction(names, 'readwrite');
      const request = ({change})(...names.map((name) => transaction.objectStore(name)), argument);
      await new Promise((resolve) => {{ transaction.oncomplete = resolve; }});
      database.close();
      return request.result;
    }}
    """
    return page.evaluate(code, [stores, argument])
