package main

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
)

// startSigner runs the controller of kube-controller-manager that signs approved requests for
// kubernetes.io/kube-apiserver-client, with the cluster's CA. No certificate lives longer than ttl.
func startSigner(ctx context.Context, dir string, ttl time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := signer.NewKubeAPIServerClientCSRSigningController(
		ctx, client, factory.Certificates().V1().CertificateSigningRequests(),
		filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), ttl,
	)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go controller.Run(ctx, 1)
	return nil
}
