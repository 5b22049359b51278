"""As pods.py, with kubernetes_asyncio."""

import asyncio
import sys

from kubernetes_asyncio import client, config


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        for pause in ["0", *sys.argv[1:]]:
            await asyncio.sleep(float(pause))
            pods = await client.CoreV1Api(api).list_namespaced_pod("default")
            for pod in pods.items:
                print(pod.metadata.name)


asyncio.run(main())
