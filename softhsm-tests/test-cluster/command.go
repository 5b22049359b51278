package main

// The commands that exec and attach run, each the leader of a process group, so that its children
// end with it when the cluster does.

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// ExecInContainer runs a command to its end, which the library reports: an exit code, or 128 and
// the signal's number. Its input may end later than it.
func (k *kubelet) ExecInContainer(_ context.Context, _, _, _ string, words []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(words) == 0 {
		return errors.New("no command")
	}
	command := exec.Command(words[0], words[1:]...)
	command.Dir = k.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.dir}
	if tty {
		return k.runAtTerminal(command, in, out, resize)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stdout, command.Stderr = out, errOut
	var input io.WriteCloser
	if in != nil {
		// Not command.Stdin: Wait would wait for its end.
		var err error
		if input, err = command.StdinPipe(); err != nil {
			return err
		}
	}
	if err := command.Start(); err != nil {
		return err
	}
	k.commands.Store(command.Process.Pid, nil)
	if in != nil {
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
	}
	return k.wait(command)
}

// runAtTerminal gives the command a terminal and a session of its own; the end of the input is typed
// there, as Ctrl-D.
func (k *kubelet) runAtTerminal(command *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	command.Env = append(command.Env, "TERM=xterm")
	terminal, err := pty.Start(command)
	if err != nil {
		return err
	}
	k.commands.Store(command.Process.Pid, nil)
	go func() {
		for size := range resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() {
			_, _ = io.Copy(terminal, in)
			_, _ = terminal.Write([]byte{4})
		}()
	}
	// This ends with an error when no process has the terminal open any more.
	_, _ = io.Copy(out, terminal)
	terminal.Close()
	return k.wait(command)
}

// wait returns the exit status in the form that the streaming library knows.
func (k *kubelet) wait(command *exec.Cmd) error {
	err := command.Wait()
	k.commands.Delete(command.Process.Pid)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

// stop ends the commands that still run.
func (k *kubelet) stop() {
	k.commands.Range(func(group, _ any) bool {
		_ = syscall.Kill(-group.(int), syscall.SIGKILL)
		return true
	})
}
