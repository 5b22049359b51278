"""As pods.py, with pykube-ng."""

import sys
import time

import pykube

api = pykube.HTTPClient(pykube.KubeConfig.from_env())
for pause in ["0", *sys.argv[1:]]:
    time.sleep(float(pause))
    for pod in pykube.Pod.objects(api).filter(namespace="default"):
        print(pod.name)
