package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"

	authentication "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"pkcs11-external-signer/client-go/externalsigner"
)

// client is what the commands have in common.
type client struct {
	config    *rest.Config
	signer    *externalsigner.Signer
	namespace string
}

func (c *client) whoami(ctx context.Context) error {
	user, err := review(ctx, c.config)
	if err != nil {
		return err
	}
	fmt.Printf("user: %s\ngroups: %s\n", user.Username, strings.Join(user.Groups, " "))
	return nil
}

// review asks the API server who is asking.
func review(ctx context.Context, config *rest.Config) (*authentication.UserInfo, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	reviews := client.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &review.Status.UserInfo, nil
}

// page shows what a server answers that need not be an API server.
func (c *client) page(ctx context.Context, path string) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	page, err := client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	fmt.Printf("%s", page)
	return err
}

func (c *client) get(ctx context.Context, resource string) error {
	objects, err := c.resource(resource)
	if err != nil {
		return err
	}
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, object := range list.Items {
		fmt.Println(object.GetName())
	}
	return nil
}

func (c *client) apply(ctx context.Context, file string) error {
	input := io.Reader(os.Stdin)
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return err
		}
		defer opened.Close()
		input = opened
	}
	documents := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(input), 4096)
	for {
		var object unstructured.Unstructured
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		objects, err := c.objects(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		options := metav1.ApplyOptions{FieldManager: "client-go", Force: true}
		applied, err := objects.Apply(ctx, object.GetName(), &object, options)
		if err != nil {
			return err
		}
		fmt.Println("applied", applied.GetName())
	}
}

func (c *client) delete(ctx context.Context, resource, name string) error {
	objects, err := c.resource(resource)
	if err != nil {
		return err
	}
	return objects.Delete(ctx, name, metav1.DeleteOptions{})
}

func (c *client) watch(ctx context.Context, resource string, events int) error {
	objects, err := c.resource(resource)
	if err != nil {
		return err
	}
	watch, err := objects.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	fmt.Println("watching")
	for range events {
		event, open := <-watch.ResultChan()
		if !open {
			return errors.New("the watch ended early")
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("%s: %v", event.Type, event.Object)
		}
		fmt.Println(event.Type, object.GetName())
	}
	return nil
}

// parallel makes every request on a cold connection of its own.
func (c *client) parallel(ctx context.Context, n int) error {
	outcomes := make(chan error, n)
	var connections connections
	for range n {
		go func() {
			config := rest.CopyConfig(c.config)
			transport, own := config.Transport.(*http.Transport)
			if !own {
				outcomes <- errors.New("parallel needs a user with an external signer")
				return
			}
			transport = transport.Clone()
			// The clone would share the HTTP/2 connections of its original.
			transport.TLSNextProto = nil
			transport.ForceAttemptHTTP2 = true
			config.Transport = transport
			_, err := review(connections.counted(ctx), config)
			outcomes <- err
		}()
	}
	var failures []error
	for range n {
		failures = append(failures, <-outcomes)
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	fmt.Printf("%d ok, %d signatures, %d connections\n", n, c.signer.Signatures(), connections.number())
	return nil
}

// connections are those that requests went over, by their own ends' addresses.
type connections struct{ addresses sync.Map }

func (c *connections) counted(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { c.addresses.Store(info.Conn.LocalAddr().String(), nil) },
	})
}

func (c *connections) number() (n int) {
	c.addresses.Range(func(any, any) bool { n++; return true })
	return n
}

func (c *client) sequence(ctx context.Context, n int) error {
	for range n {
		if _, err := review(ctx, c.config); err != nil {
			return err
		}
	}
	fmt.Printf("%d ok, %d signatures\n", n, c.signer.Signatures())
	return nil
}

// resource finds a resource by the name that people use: configmaps, cm, pods …
func (c *client) resource(name string) (dynamic.ResourceInterface, error) {
	mapper, err := c.mapper()
	if err != nil {
		return nil, err
	}
	resource, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: name})
	if err != nil {
		return nil, err
	}
	kind, err := mapper.KindFor(resource)
	if err != nil {
		return nil, err
	}
	return c.objects(kind.GroupKind(), kind.Version)
}

// objects are all of a kind, in the namespace where the kind has one.
func (c *client) objects(kind schema.GroupKind, version string) (dynamic.ResourceInterface, error) {
	mapper, err := c.mapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(kind, version)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	objects := client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return objects.Namespace(c.namespace), nil
	}
	return objects, nil
}

func (c *client) mapper() (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), nil
}
