# named prints the configuration file that a drop-in of unit $1 sets with --config or HOSTLER_CONFIG.
# It prints nothing for the default file.
named() {
	file=$(systemctl show --property=ExecStart --value "$1.service" | sed -nE 's/.* --config[= ]([^ ;]+) .*/\1/p')
	[ -n "$file" ] || file=$(systemctl show --property=Environment --value "$1.service" | sed -nE 's/^(.* )?HOSTLER_CONFIG=([^ ]+).*/\2/p')
	echo "$file"
}

# renew NAME UNIT FLAG COMMAND VERB runs the command for a service: the agent, or the server with FLAG
# --server. If the new version rejects the configuration, it does nothing: an old process that runs
# does its job, a new one that cannot start does not.
renew() {
	name=$1 unit=$2 verb=${5#try-} file=$(named "$2")
	check="hostler config check${3:+ $3}${file:+ --config $file}"
	if faults=$(HOSTLER_CONFIG= /usr/bin/$check 2>&1); then
		"$4" "$5" "$unit.service" ||
			echo "hostler: WARNING: the $name did not $verb; to see why, run: systemctl status $unit" >&2
		return
	fi
	{
		echo "hostler: WARNING: this version rejects the configuration of the $name:"
		echo "$faults"
		echo "hostler: the $name was NOT ${verb}ed; if it runs, it has the previous version"
		echo "hint: correct the files until this succeeds: $check; only then: systemctl restart $unit"
	} >&2
}

# renew_server renews a server that runs.
renew_server() {
	if systemctl is-active --quiet hostler-server.service; then
		renew server hostler-server --server "$1" try-restart
	fi
}
