"""Prints the names of the pods, as a program with the kubeconfig's current context: at once, and once more after so many
seconds as an argument says."""

import sys
import time

from kubernetes import client, config

config.load_kube_config()
for pause in ["0", *sys.argv[1:]]:
    time.sleep(float(pause))
    for pod in client.CoreV1Api().list_namespaced_pod("default").items:
        print(pod.metadata.name)
