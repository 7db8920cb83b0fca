"""A picture of a page as a PNG of 256 colors, which is about half as large as the browser's own."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from playwright.sync_api import Page

COLORS = 256
_DECODE = """async (png) => {
    const blob = await (await fetch('data:image/png;base64,' + png)).blob();
    const image = await createImageBitmap(blob);
    const canvas = new OffscreenCanvas(image.width, image.height);
    const pen = canvas.getContext('2d');
    pen.drawImage(image, 0, 0);
    const { data } = pen.getImageData(0, 0, image.width, image.height);
    let text = '';
    for (let at = 0; at < data.length; at += 32768)
        text += String.fromCharCode(...data.subarray(at, at + 32768));
    return [image.width, image.height, btoa(text)];
}"""


def smaller(png: bytes, page: Page) -> bytes:
    """Return a PNG of 256 colors; `page` is a blank page, which decodes it."""
    width, height, pixels = page.evaluate(_DECODE, base64.b64encode(png).decode())
    image = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height * width, 4)[:, :3]
    tones = image.astype(np.int64)
    codes = tones[:, 0] << 16 | tones[:, 1] << 8 | tones[:, 2]
    exact, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    palette, nearest = _palette(_channels(exact), counts)
    rows = nearest[place].reshape(height, width)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"PLTE", palette.astype(np.uint8).tobytes())
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def _palette(colors: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return up to COLORS of these colors (n, 3), and the place of the nearest one for each.

    Each next color is the one that lacks most: its pixels times its squared distance from those
    chosen. The most frequent ones alone would turn a small red mark gray, beside letters' edges.
    """
    chosen: list[int] = []
    distance = np.full(len(colors), np.inf)
    nearest = np.zeros(len(colors), np.uint8)
    lacking = counts.astype(float)
    while len(chosen) < COLORS and lacking.max() > 0:
        chosen.append(int(np.argmax(lacking)))
        to_chosen = ((colors - colors[chosen[-1]]) ** 2).sum(axis=1)
        closer = to_chosen < distance
        distance = np.where(closer, to_chosen, distance)
        nearest[closer] = len(chosen) - 1
        lacking = counts * distance
    return colors[chosen], nearest


def _channels(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes >> 16 & 255, codes >> 8 & 255, codes & 255], axis=1)


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
