package conditions_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// bound is the timeout for events that normally occur at once.
const bound = 5 * time.Minute

func TestResultsOfAScript(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		answer status.Answer
		want   string // the message; its beginning if it ends in "*"
	}{
		"fine":                              {"echo all well", status.Passed, "all well"},
		"fine, without a word":              {"exit 0", status.Passed, "the check exited with code 0 and printed nothing"},
		"a problem":                         {"echo bad disk; echo more; exit 1", status.Problem, "bad disk"},
		"a problem reported on stderr only": {"echo first >&2; echo last >&2; echo >&2; exit 1", status.Problem, "last"},
		"a problem reported on both":        {"echo on stderr >&2; echo on stdout; exit 1", status.Problem, "on stdout"},
		"blank lines before the first":      {`printf '\n  \nfirst\n'; exit 1`, status.Problem, "first"},
		"an unknown result":                 {"echo no idea; exit 2", status.Undecided, "no idea"},
		"a number that no one knows":        {"exit 77", status.Undecided, "the check exited with code 77 and printed nothing"},
		"nothing, being killed":             {"echo half; kill -9 $$", status.Undecided, "the check was killed by signal 9 (killed); output: half"},
		"a megabyte":                        {"echo first; head -c 1000000 /dev/zero | tr '\\0' x; exit 1", status.Problem, "first"},
		"a megabyte on one line":            {"head -c 1000000 /dev/zero | tr '\\0' x; exit 1", status.Problem, "xxxx*"},
		"a megabyte of complaints":          {"head -c 1000000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo last >&2; exit 1", status.Problem, "last"},
		"output without end":                {"exec cat /dev/zero", status.Undecided, "the check was killed because it printed more than 8 MiB"},
		"bytes that are no text":            {`printf 'a\377\033[31mb\007\n'; exit 1`, status.Problem, "a\uFFFDb"},
		"where and with what it is":         {"echo $(pwd) $HOME $# $(cat | wc -c) $(env | grep -v '^_=\\|^PWD=\\|^OLDPWD=\\|^SHLVL=' | cut -d= -f1 | sort | tr '\\n' ' ')", status.Passed, "/ / 0 0 HOME LANG LOGNAME PATH USER"},
		"with a child that holds its pipes": {"sleep 1000 & echo done", status.Passed, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			put(t, path, "#!/bin/sh\n"+c.script+"\n", 0o755)
			began := time.Now()
			got, gone := conditions.Execute(t.Context(), path, bound)
			begins, cut := strings.CutSuffix(c.want, "*")
			if got.Answer != c.answer || got.Message != c.want && !(cut && strings.HasPrefix(got.Message, begins)) || time.Since(began) >= bound {
				t.Errorf("execute() = %v %q after %v, want %v %q", got.Answer, got.Message, time.Since(began), c.answer, c.want)
			}
			<-gone
		})
	}
}

// With the terminal of a person who runs the agent in a shell, a check could type commands.
func TestAScriptHasNoTerminalOfAnybody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	put(t, path, "#!/bin/sh\nread -r pid _ _ _ group session terminal _ </proc/self/stat\n"+
		"[ $pid = $$ ] && [ $group = $$ ] && [ $session = $$ ] && [ $terminal = 0 ] && exit 0\n"+
		"echo \"$pid is of group $group, session $session, terminal $terminal\"\nexit 1\n", 0o755)
	got, gone := conditions.Execute(t.Context(), path, bound)
	if got.Answer != status.Passed {
		t.Errorf("execute() = %v %q, want it to lead a session of its own", got.Answer, got.Message)
	}
	<-gone
}

func TestAScriptThatHangsIsKilledWithItsGroup(t *testing.T) {
	folder := t.TempDir()
	path, child := filepath.Join(folder, "x"), filepath.Join(folder, "child")
	put(t, path, "#!/bin/sh\ntrap '' TERM\necho half\nsleep 1000 &\necho $! >"+child+".new\nmv "+child+".new "+child+"\nwait\nsleep 1000\n", 0o755)
	for limit := time.Second; ; limit *= 2 {
		got, gone := conditions.Execute(t.Context(), path, limit)
		<-gone
		if _, err := os.Stat(child); err != nil && limit < bound { // a busy machine has not run it so far
			continue
		}
		if got.Answer != status.TimedOut || got.Message != fmt.Sprintf("the check did not end within %v; output: half", limit) || got.Took < limit || got.Took > limit+bound {
			t.Errorf("execute() = %+v, want that it timed out after %v", got, limit)
		}
		break
	}
	wantGone(t, child)
}

// wantGone waits until the process whose ID is in the file has ended or is a zombie.
func wantGone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") { // a zombie whose parent does not wait for it
			return
		}
		if time.Since(began) > bound {
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
	}
}

func TestProcessesThatAScriptLeavesAreKilled(t *testing.T) {
	folder := t.TempDir()
	path, child := filepath.Join(folder, "x"), filepath.Join(folder, "child")
	put(t, path, "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $! >"+child+"\n", 0o755)
	got, gone := conditions.Execute(t.Context(), path, bound)
	if got.Answer != status.Passed {
		t.Errorf("execute() = %+v, want it fine", got)
	}
	<-gone
	wantGone(t, child)
}

// A grandchild in its own session is not in the group; it must not delay the result.
func TestAGrandchildThatHoldsThePipeIsNotWaitedFor(t *testing.T) {
	folder := t.TempDir()
	path, child := filepath.Join(folder, "x"), filepath.Join(folder, "child")
	put(t, path, "#!/bin/sh\nsetsid sh -c 'echo $$ >"+child+"; exec sleep 1000' &\nwhile ! [ -s "+child+" ]; do :; done\necho done\nexit 1\n", 0o755)
	got, gone := conditions.Execute(t.Context(), path, bound)
	if got.Answer != status.Problem || got.Message != "done" || got.Took >= bound {
		t.Errorf("execute() = %+v, want the problem, soon", got)
	}
	<-gone
	text, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end the grandchild: %v", err)
	}
}

func TestTheEndOfTheAgentEndsAScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	put(t, path, "#!/bin/sh\nsleep 1000\n", 0o755)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, gone := conditions.Execute(ctx, path, time.Hour)
	if got.Took > bound {
		t.Errorf("execute() took %v, want it to end with its context", got.Took)
	}
	<-gone
}

func TestWhatOthersMayWriteByNowIsNotRun(t *testing.T) {
	folder := t.TempDir()
	path, ran := filepath.Join(folder, "x"), filepath.Join(folder, "ran")
	put(t, path, "#!/bin/sh\ntouch "+ran+"\n", 0o757)
	got, gone := conditions.Execute(t.Context(), path, bound)
	<-gone
	if _, err := os.Stat(ran); err == nil || got.Answer != status.NotRun || !strings.Contains(got.Message, "is writable by users other than root") {
		t.Errorf("execute() = %+v, ran: %v, want it not to be run", got, err == nil)
	}
}

// As root, it would be a way to become root.
func TestAnInterpreterThatOthersMayWriteIsNotRun(t *testing.T) {
	folder := t.TempDir()
	shell, ran := filepath.Join(folder, "shell"), filepath.Join(folder, "ran")
	put(t, shell, "#!/bin/sh\ntouch "+ran+"\n", 0o757)
	put(t, folder+"/x", "#!"+shell+"\n", 0o755)
	got, gone := conditions.Execute(t.Context(), folder+"/x", bound)
	<-gone
	if _, err := os.Stat(ran); err == nil || got.Answer != status.NotRun || !strings.Contains(got.Message, shell+" is writable by users other than root") {
		t.Errorf("execute() = %+v, ran: %v, want it not to be run", got, err == nil)
	}
}

func TestChecksThatCannotBeStarted(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an interpreter that is not there": {"#!/no/such/thing\n", "no such file or directory; the file, or the interpreter"},
		"lines that end as on Windows":     {"#!/bin/sh\r\nexit 0\r\n", "no such file or directory; its first line ends in a carriage return"},
		"no interpreter":                   {"exit 0\n", "exec format error; begin the script with its interpreter"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			put(t, path, c.text, 0o755)
			got, gone := conditions.Execute(t.Context(), path, bound)
			if got.Answer != status.NotRun || !strings.HasPrefix(got.Message, "start "+path+": ") || !strings.Contains(got.Message, c.want) {
				t.Errorf("execute() = %+v, want that it was not run: %s", got, c.want)
			}
			<-gone
		})
	}
}
