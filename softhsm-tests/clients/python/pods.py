"""Prints the names of the pods, as a program with the kubeconfig's current context."""

from kubernetes import client, config

config.load_kube_config()
for pod in client.CoreV1Api().list_namespaced_pod("default").items:
    print(pod.metadata.name)
