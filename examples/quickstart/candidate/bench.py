"""A benchmark as an agent would find it: measures dot.py and writes the figure to result.json."""

import json
import os
import platform
import time

from dot import dot

N = 200_000
a = [float(i % 7) for i in range(N)]
b = [float(i % 5) for i in range(N)]

best, value = float("inf"), 0.0
for _ in range(5):
    start = time.perf_counter()
    value = dot(a, b)
    best = min(best, time.perf_counter() - start)

expected = sum(x * y for x, y in zip(a, b))
assert abs(value - expected) < 1e-6, f"wrong answer: {value}"
result = {
    "milliseconds": round(best * 1000, 3),
    "node": platform.node(),
    "gpus": os.environ.get("ROCR_VISIBLE_DEVICES", ""),
}
with open("result.json", "w", encoding="utf-8") as file:
    json.dump(result, file)
print(f"dot of {N} elements: {result['milliseconds']} ms on {result['node']}")
