package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// createPod makes the node whose kubelet has this port, and the pod "shell" in the namespace
// "default": running, with one container, "main".
func createPod(ctx context.Context, client kubernetes.Interface, kubeletPort int) {
	// The API server makes this namespace, but may be ready before it has.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); !errors.IsAlreadyExists(err) {
		check(err)
	}
	node := must(client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(kubeletPort)},
			},
		},
	}, metav1.CreateOptions{}))
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := must(pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shell"},
		Spec: corev1.PodSpec{
			NodeName: node.Name,
			Containers: []corev1.Container{{
				Name:  "main",
				Image: "none.invalid/this-machine",
				Stdin: true, // or nobody may attach with input
			}},
		},
	}, metav1.CreateOptions{}))
	started := true
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name:    "main",
			State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			Ready:   true,
			Started: &started,
			Image:   pod.Spec.Containers[0].Image,
		}},
	}
	must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
}
