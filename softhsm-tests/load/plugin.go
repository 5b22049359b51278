package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// plugin calls the credential plugin of the kubeconfig's only user as client-go does (KEP-541), in
// turns with a program that does nothing.
func plugin(n int) {
	call, idle := readCall(), &call{command: "/bin/true"}
	call.milliseconds() // the first call may open the key
	var calls, nothing []float64
	for range n {
		calls = append(calls, call.milliseconds())
		nothing = append(nothing, idle.milliseconds())
	}
	fmt.Printf("%.2f %.2f\n", median(calls), median(nothing))
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// call is how a client calls a plugin.
type call struct {
	command     string
	arguments   []string
	environment []string
}

func readCall() *call {
	type object = map[string]any
	var config struct {
		Clusters []struct{ Cluster object }
		Users    []struct {
			User struct {
				Exec struct {
					APIVersion string
					Command    string
					Args       []string
				}
			}
		}
	}
	check(json.Unmarshal(must(os.ReadFile(os.Getenv("KUBECONFIG"))), &config))
	cluster, plugin := config.Clusters[0].Cluster, config.Users[0].User.Exec
	for _, extension := range cluster["extensions"].([]any) {
		cluster["config"] = extension.(object)["extension"]
	}
	delete(cluster, "extensions")
	request := must(json.Marshal(object{
		"apiVersion": plugin.APIVersion,
		"kind":       "ExecCredential",
		"spec":       object{"cluster": cluster, "interactive": false},
	}))
	environment := append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(request))
	return &call{plugin.Command, plugin.Args, environment}
}

func (c *call) milliseconds() float64 {
	command := exec.Command(c.command, c.arguments...)
	command.Env = c.environment
	begin := time.Now()
	must(command.Output())
	return float64(time.Since(begin).Microseconds()) / 1000
}
