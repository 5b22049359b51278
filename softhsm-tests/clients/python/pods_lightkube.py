"""As pods.py, with lightkube."""

import sys
import time

from lightkube import Client
from lightkube.resources.core_v1 import Pod

client = Client()
for pause in ["0", *sys.argv[1:]]:
    time.sleep(float(pause))
    for pod in client.list(Pod, namespace="default"):
        print(pod.metadata.name)
