"""As pods.py, with kr8s."""

import sys
import time

import kr8s

for pause in ["0", *sys.argv[1:]]:
    time.sleep(float(pause))
    for pod in kr8s.get("pods", namespace="default"):
        print(pod.name)
