#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prometheus reads a loaded primary and its mirror; every query of the dashboard returns figures,
# every alert rule is evaluated without an error, and a mirror that is killed raises its alert.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
command -v prometheus >/dev/null || skip "prometheus is missing"

address() { "$KVFS" status --json "$1" | sed -n 's/^  "metrics": "\(.*\)",$/\1/p'; }

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s s.m tcp:127.0.0.1:0 metrics=127.0.0.1:0
port=$("$KVFS" status --json "$tmp/s" | sed -n 's/.*"listen_port": \([0-9]*\).*/\1/p')
mount_volume "mirror=tcp:127.0.0.1:$port,metrics=127.0.0.1:0,min_mirrors=0"

# The waits of alerts are for people: here they fire at once.
sed 's/^\( *for:\).*/\1 0s/' "$top_srcdir/scripts/prometheus/kvfs.rules.yml" >"$tmp/kvfs.rules.yml"
cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [kvfs.rules.yml]
scrape_configs:
  - job_name: kvfs
    static_configs: [{targets: ["$(address "$tmp/m")", "$(address "$tmp/s")"]}]
END
promtool check config "$tmp/prometheus.yml" >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
web=127.0.0.1:$(free_port)
prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" \
	--web.listen-address="$web" >"$tmp/prometheus.log" 2>&1 &

# ask EXPRESSION: the first value it has, nothing without one
ask()
{
	python3 -c '
import json, sys, urllib.parse, urllib.request
url = "http://%s/api/v1/query?%s" % (sys.argv[1], urllib.parse.urlencode({"query": sys.argv[2]}))
try:
	result = json.load(urllib.request.urlopen(url, timeout=10))["data"]["result"]
except OSError:
	result = []
print(result[0]["value"][1] if result else "")' "$web" "$1"
}

# Some of everything: reads, writes, a checkpoint, pages of the view to be dropped.
# It ends with the mount.
while "$KVFS" bench --dir "$tmp/m" --seconds 1 --load a,create --keys 200 --threads 1 >/dev/null; do
	cat "$tmp"/s.m/kvfs-bench/* >/dev/null 2>&1 || :
	"$KVFS" checkpoint "$tmp/m"
done >"$tmp/load.log" 2>&1 &
wait_for '[ "$(ask "min(count_over_time(kvfs_lsn[1m])) > bool 9")" = 1 ]' 90
wait_for '[ "$(ask "sum(rate(kvfs_checkpoints_total[10s])) > bool 0")" = 1 ]' 30

# A panel may have nothing to show for a moment (classes while no key is there): asked until it has.
python3 - "$web" "$top_srcdir/scripts/grafana/kvfs.json" "${KVFS_TEST_PATIENCE:-1}" <<'END' ||
import json, math, os, sys, time, urllib.parse, urllib.request

web, path, patience = sys.argv[1:]
no_rdma = not os.path.isdir("/sys/class/infiniband")
board = json.load(open(path))
panels = [p for p in board["panels"] if p["type"] != "row"]
assert len({p["id"] for p in board["panels"]}) == len(board["panels"]), "panels with the same id"

def figures(query):
	url = "http://%s/api/v1/query?%s" % (web, urllib.parse.urlencode({"query": query}))
	try:
		reply = json.load(urllib.request.urlopen(url, timeout=20))
	except urllib.error.HTTPError as e:
		reply = json.load(e)
	values = [r["value"][1] for r in reply.get("data", {}).get("result", [])]
	return any(not math.isnan(float(v)) for v in values), reply.get("error", values)

wrong = tried = 0
deadline = time.monotonic() + 60 * int(patience)
for panel in panels:
	assert panel["targets"], panel["title"]
	for target in panel["targets"]:
		query = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "15s")
		assert "$" not in query, query
		tried += 1
		there, answer = figures(query)
		lacking = no_rdma and "kvfs_rdma_" in query # it can be asked, and that is all
		while not there and not lacking and time.monotonic() < deadline:
			time.sleep(0.5)
			there, answer = figures(query)
		if not there and not (lacking and answer == []):
			print("%s: %s: %s" % (panel["title"], query, answer))
			wrong += 1
print("%d queries, %d without figures" % (tried, wrong))
sys.exit(1 if wrong or tried < 40 else 0)
END
	fail "see above"

# A rule whose name nobody gives is quiet for ever. Those of a device are not here without one.
python3 - "$top_srcdir" "$(address "$tmp/m")" "$(address "$tmp/s")" <<'END' || fail "see above"
import glob, re, sys, urllib.request

top, given = sys.argv[1], set()
for address in sys.argv[2:]:
	for line in urllib.request.urlopen("http://%s/metrics" % address, timeout=20):
		given.add(re.match(rb"[a-z_0-9]*", line).group().decode())
rules = open(top + "/scripts/prometheus/kvfs.rules.yml").read()
exprs = re.findall(r"^ *expr: (.*(?:\n {10,}.*)*)", rules, re.M)
assert len(exprs) == rules.count(" alert: ")
names = {n for e in exprs for n in re.findall(r"\b(?:kvfs|qp|mr|rdma)_[a-z_]+", e)}
source = "".join(open(f).read() for f in glob.glob(top + "/fs/node/node_*.c"))
device = {n for n in names if n.startswith("kvfs_rdma_") and '"%s"' % n in source}
print("%d names in the rules, nobody gives: %s" % (len(names), sorted(names - given - device)))
sys.exit(1 if names - given - device or len(names) < 15 else 0)
END

# Rules: all evaluated, none with an error, nothing critical while all is well. A machine that stood
# still for a second is a node that was down, for as long.
rules()
{
	python3 -c '
import json, sys, urllib.request
reply = urllib.request.urlopen("http://%s/api/v1/rules" % sys.argv[1], timeout=10)
groups = json.load(reply)["data"]["groups"]
for rule in groups[0]["rules"]:
	print(rule["name"], rule["health"], rule["state"], rule["labels"]["severity"],
		rule.get("lastError", ""))' "$web"
}
(wait_for 'rules >"$tmp/rules" && ! grep -Eq " unknown | firing critical" "$tmp/rules"' 20) ||
	fail "an alert without a cause: $(cat "$tmp/rules")"
[ "$(wc -l <"$tmp/rules")" -eq "$(grep -c ' alert: ' "$tmp/kvfs.rules.yml")" ] ||
	fail "rules: $(cat "$tmp/rules")"
! grep -v ' ok ' "$tmp/rules" || fail "a rule could not be evaluated"
kill_daemon s
for alert in KvfsMirrorLost KvfsDegraded KvfsDown; do
	wait_for "rules | grep -q '^$alert ok firing'" 30
done
