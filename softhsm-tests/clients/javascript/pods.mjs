// Prints the names of the pods, as a program with the kubeconfig's current context.
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node";

const config = new KubeConfig();
config.loadFromDefault();
const pods = await config.makeApiClient(CoreV1Api).listNamespacedPod({ namespace: "default" });
for (const pod of pods.items) console.log(pod.metadata.name);
