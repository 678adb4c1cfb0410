//go:build integration

package packages_test

import (
	"strings"
	"testing"
)

// typist types into a zsh on a terminal, key by key: each of its arguments, including the TABs. It
// prints the resulting command line.
const typist = `
	typist() {
		cat >/tmp/typist <<-'END'
			zmodload zsh/zpty
			zpty shell zsh -f -i
			# Reads what the shell prints until it is what is waited for.
			await() {
				zpty -r shell REPLY "$1" && return
				print -r -- "no $1 in ${(V)REPLY}"
				exit 1
			}
			# The key Ctrl-T prints the line and leaves it empty: it is read when the completion
			# before it is done. What is typed here does not hold what is waited for.
			zpty -w shell 'autoload -U compinit && compinit -u -d /tmp/dump
				tell() { zle -I; print -r -- "@$BUFFER@"; BUFFER=; }
				zle -N tell; bindkey "^T" tell; setopt menu_complete; PS1=rea; PS1+="dy "'
			await '*ready *'
			for typed; do
				zpty -w -n shell "$typed"$'\C-t'
				await '*@hostler*@*'
				print -r -- "${${REPLY#*@}%@*}"
			done
		END
		TERM=xterm timeout 600 zsh -f /tmp/typist "$@" 2>&1
	}
`

// Each shell completes commands and values of flags with the installed files.
func TestCompletionsCompleteInTheirShells(t *testing.T) {
	got := steps(t, typist+`
		deb >/dev/null
		step fish; fish -c 'complete -C "hostler gc pl"; complete -C "hostler status -o "' | cut -f1 | sort
		completed() {
			bash -c '
				source /usr/share/bash-completion/bash_completion
				source /usr/share/bash-completion/completions/hostler
				COMP_LINE=$* COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
				__start_hostler && printf "%s\n" "${COMPREPLY[@]}"' complete "$@" 2>/dev/null | # compopt: readline does not run
				sed 's/ *$//' | sort
		}
		step bash; completed hostler gc pl; completed hostler status -o ''
		# Where several are possible, each TAB takes the next, and after the last the first.
		step zsh; typist $'hostler gc pl\t' $'hostler gc \t' $'hostler gc \t\t' $'hostler gc \t\t\t' $'hostler gc \t\t\t\t'
		step value; typist $'hostler status -o \t' $'hostler status -o \t\t' $'hostler status -o \t\t\t' $'hostler status -o \t\t\t\t' $'hostler status -o \t\t\t\t\t' $'hostler status --output=j\t'
	`)
	for shell, want := range map[string]string{
		"fish":  "json\nplan\ntable\nwide\nyaml\n",
		"bash":  "plan\njson\ntable\nwide\nyaml\n",
		"zsh":   "hostler gc plan\nhostler gc history\nhostler gc plan\nhostler gc run\nhostler gc history\n",
		"value": "hostler status -o json\nhostler status -o table\nhostler status -o wide\nhostler status -o yaml\nhostler status -o json\nhostler status --output=json\n",
	} {
		if strings.ReplaceAll(got[shell], " \n", "\n") != want {
			t.Errorf("%s completes to\n%s\nwant\n%s", shell, got[shell], want)
		}
	}
}
