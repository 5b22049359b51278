// Prints the names of the pods, as a program with the kubeconfig's current context: at once, and once more after so many
// seconds as an argument says.
import { setTimeout } from "node:timers/promises";
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node";

const config = new KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(CoreV1Api);
for (const pause of ["0", ...process.argv.slice(2)]) {
  await setTimeout(Number(pause) * 1000);
  const pods = await api.listNamespacedPod({ namespace: "default" });
  for (const pod of pods.items) console.log(pod.metadata.name);
}
