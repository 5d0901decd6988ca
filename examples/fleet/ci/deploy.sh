#!/bin/sh
# deploy.sh deploys a release to hosts, one after the other, and stops at the first where it does not serve.
#
#   deploy.sh RELEASE HOST...
#
# On each host it lets `current` lead to releases/RELEASE, which must be there, and runs `supervisord reload`. If the release does not
# serve, `current` leads to the release before again. The verdict of each host is in verdict-HOST.json.
#
# It exits with 0; with 16 if the release serves everywhere but old workers had to be killed; otherwise with the status of the host at
# which it stopped: see `supervisord help exit-status`, and 255 if ssh failed.
set -eu

program=${PROGRAM:-web}         # the program of supervisord's configuration
root=${ROOT:-/srv/web}          # where `current` and `releases` are
timeout=${TIMEOUT:-10m}         # for each host, with the drain of the old workers

[ $# -ge 2 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
release=$1
shift
case $release in
*[!A-Za-z0-9._-]* | .*) echo "deploy: \"$release\" cannot be the name of a release" >&2; exit 2 ;; # a shell on the host reads it
esac

# on_host deploys on one host. Its standard input for ssh is what a shell there runs.
on_host() {
	ssh "$1" sh -s -- "$program" "$root" "$release" "$timeout" <<'END' >"verdict-${1#*@}.json"
set -eu
program=$1 root=$2 release=$3 timeout=$4
cd "$root"
[ -d "releases/$release" ] || { echo "there is no $root/releases/$release" >&2; exit 1; }
lead_to() { ln -sfn "$1" current.new && mv -T current.new current; }
before=$(readlink current) || before=
lead_to "releases/$release"
status=0
supervisord reload "$program" --drained --timeout "$timeout" --json --reason "deploy $release" || status=$?
case $status in # otherwise it serves, or may yet: a worker that is replaced later must come from it, too
1 | 2 | 10 | 11 | 12 | 69 | 77 | 78) [ -z "$before" ] || lead_to "$before" ;;
esac
exit "$status"
END
}

killed=
for host; do
	echo "deploy: $release on $host"
	status=0
	on_host "$host" || status=$?
	case $status in
	0) continue ;;
	16) killed=yes; echo "deploy: $host: $release serves, but old workers had to be killed: requests may be lost" >&2; continue ;;
	10 | 11 | 12) why="$release failed; the release before serves" ;;
	13) why="$release gave way to another reload, abort, rollback or stop: supervisord status says which" ;;
	14) why="$release does not serve yet, or old workers are still there, after $timeout; the reload continues" ;;
	1 | 2 | 69 | 77 | 78) why="nothing has changed" ;;
	*) why="supervisord reload or ssh exited with $status: it is unknown whether $release serves" ;;
	esac
	echo "deploy: stopped at $host: $why" >&2
	exit "$status"
done
[ -z "$killed" ] || exit 16
