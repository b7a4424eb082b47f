"""The server's pages, in a headless browser where there is one."""

import asyncio
import shutil
import subprocess

import aiohttp
import pytest

from tests.serving import counting_predictor, serving

BROWSER = next(filter(None, map(shutil.which, (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
# What a user does: type, press the button, read.
TRY_IT = """
new Promise(resolve => {
  const area = document.querySelector("textarea");
  area.value = %s;
  new MutationObserver(() => {
    const text = document.getElementById("answer").textContent;
    if (text !== "…") resolve([area.name, text]);
  }).observe(document.getElementById("answer"), { childList: true, characterData: true,
                                                  subtree: true });
  document.querySelector("button").click();
})
"""


# What a user sees of the API, once it is drawn.
READ_DOCS = """
new Promise(resolve => {
  const look = () => document.body.innerText.includes("/metrics")
    ? resolve(document.body.innerText) : setTimeout(look, 50);
  look();
})
"""


async def evaluate(browser_port, url, ready, expression):
    """What an expression tells of a page that has an element ``ready``."""
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                found = await session.put(f"http://127.0.0.1:{browser_port}/json/new?{url}")
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
        address = (await found.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(address) as socket:
            async def call(number, method, **parameters):
                await socket.send_json({"id": number, "method": method, "params": parameters})
                while True:
                    message = await socket.receive_json(timeout=30)
                    if message.get("id") == number:
                        return message["result"]

            state = {"value": ""}
            number = 0
            while state.get("value") != "complete":
                number += 1
                state = (await call(number, "Runtime.evaluate", expression="document.querySelector"
                                    f"('{ready}') ? document.readyState : ''"))["result"]
                await asyncio.sleep(0.05)
            result = await call(number + 1, "Runtime.evaluate", expression=expression,
                                awaitPromise=True, returnByValue=True)
            return result["result"]["value"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_pages_show_answers_refusals_and_the_api(tmp_path):
    with serving(counting_predictor()) as port:
        browser = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
             f"--user-data-dir={tmp_path}"], stderr=subprocess.PIPE, text=True)
        try:
            line = next(line for line in browser.stderr if "DevTools listening" in line)
            browser_port = int(line.split(":")[2].split("/")[0])
            url = f"http://127.0.0.1:{port}/"
            name, shown = asyncio.run(evaluate(browser_port, url, "button",
                                               TRY_IT % '"three words here"'))
            assert name == "text" and "".join(shown.split()) == '{"embedding":[5]}'
            _, shown = asyncio.run(evaluate(browser_port, url, "button", TRY_IT % '""'))
            assert "text: is missing" in shown
            shown = asyncio.run(evaluate(browser_port, url + "docs", "#docs", READ_DOCS))
            assert "POST" in shown and "/predict" in shown and "a unit vector" in shown
        finally:
            browser.kill()
            browser.wait()
            browser.stderr.close()
