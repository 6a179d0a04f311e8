/* SPDX-License-Identifier: Apache-2.0 */
/* The option table, its defaults, and --help: see options.h. */
#include "fs/node/options_internal.h"

#include "replication/commit/commit.h"
#include "replication/transport/transport.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define FIELD(f) offsetof(struct options, f)
#define BOTH (OPTIONS_MOUNT | OPTIONS_MIRROR)
#define HELP_COLUMN 28 /* where texts begin */
#define HELP_WIDTH 79

static const struct option_def option_table[] = {
	{ "arena", KIND_SIZE, BOTH, FIELD(arena_bytes), 16 << 20, 1ULL << 46, NULL, "SIZE",
	  "memory for values (default: half of the machine's)" },
	{ "inodes", KIND_UINT, BOTH, FIELD(inodes_max), 16, 1ULL << 40, NULL, "N",
	  "most keys and directories (default: what a quarter of the memory holds)" },
	{ "mirror", KIND_ADDR, OPTIONS_MOUNT, FIELD(mirrors), 0, 0, NULL, "ADDR",
	  "a mirror: HOST:PORT, verbs:HOST:PORT, tcp:HOST:PORT or shm:SOCKET; may be repeated" },
	{ "listen", KIND_ADDR, OPTIONS_MIRROR, FIELD(listen), 0, 0, NULL, "ADDR",
	  "where the mirror waits for its primary; may be repeated" },
	{ "protocol", KIND_CHOICE, OPTIONS_MOUNT, FIELD(protocol), 0, 0, "A|B|C", "A|B|C",
	  "acknowledge when in the local log (A), also in the mirrors' memory (B), also in their "
	  "logs (C) (default: C)" },
	{ "transport", KIND_CHOICE, BOTH, FIELD(transport), 0, 0, "auto|verbs|tcp|shm",
	  "auto|verbs|tcp|shm",
	  "transport of addresses without a prefix; auto: verbs where both ends have it, "
	  "else tcp (default: auto)" },
	{ "min_mirrors", KIND_UINT, OPTIONS_MOUNT, FIELD(min_mirrors), 0, OPTIONS_MIRRORS_MAX, NULL,
	  "N",
	  "mirrors in sync that a write needs (default: a majority of the nodes; 0: go on alone)" },
	{ "timeout", KIND_UINT, OPTIONS_MOUNT, FIELD(timeout_s), 1, 3600, NULL, "SEC",
	  "longest wait of a write for its mirrors before it fails with EIO (default: 30)" },
	{ "early_truncate", KIND_CHOICE, OPTIONS_MOUNT, FIELD(early_truncate), 0, 0, "on|off",
	  "on|off",
	  "a key that open(2) empties: answered when the own log has it, as its new value follows "
	  "(default: off)" },
	{ "too_few_mirrors", KIND_CHOICE, OPTIONS_MOUNT, FIELD(too_few_mirrors), 0, 0,
	  "fail|readonly", "fail|readonly",
	  "below min_mirrors for longer than timeout, a change waits and fails with EIO, or fails "
	  "at once with EROFS (default: fail)" },
	{ "connect_timeout", KIND_UINT, OPTIONS_MOUNT, FIELD(connect_s), 1, 3600, NULL, "SEC",
	  "longest wait of the mount for min_mirrors (default: 30)" },
	{ "lanes", KIND_UINT, OPTIONS_MOUNT, FIELD(lanes), 1, 40, NULL, "N",
	  "connections used to each mirror; the tuner opens more ahead "
	  "(default: verbs 20, shm and tcp 2)" },
	{ "lanes", KIND_UINT, OPTIONS_MIRROR, FIELD(lanes), 1, 40, NULL, "N",
	  "most connections that a primary may open (default: 40)" },
	{ "lanes_open", KIND_UINT, OPTIONS_MOUNT, FIELD(lanes_open), 1, 40, NULL, "N",
	  "connections opened to each mirror, for the tuner to choose from "
	  "(default: verbs 40, shm and tcp twice lanes, at least 4)" },
	{ "poll_us", KIND_UINT, BOTH, FIELD(poll_us), 0, 1000000, NULL, "N",
	  "most microseconds to spin for an event before sleeping, while it pays "
	  "(default: shm 200, verbs 50, tcp 0)" },
	{ "mr_cache_size", KIND_SIZE, BOTH, FIELD(mr_cache_bytes), 0, 1ULL << 46, NULL, "SIZE",
	  "registered memory kept ready ahead of need (default: 64M)" },
	{ "memory", KIND_MEMORY, BOTH, FIELD(memory), 0, 0, NULL, "WHERE",
	  "memory of the arena: host, numa:NODE, devdax:/dev/daxX.Y, gpu or gpu:NUMBER (default: "
	  "host)" },
	{ "ack_timeout", KIND_UINT, BOTH, FIELD(ack_timeout), 1, 31, NULL, "N",
	  "verbs: a queue pair sends again after 4.096 us * 2^N without an answer (default: 14, 67 "
	  "ms)" },
	{ "rdma_device", KIND_DEVICE, BOTH, FIELD(rdma_device), 0, 0, NULL, "NAME[:PORT[:GID]]",
	  "verbs: device, port and GID to use (default: what leads to the peer)" },
	{ "ring", KIND_SIZE, OPTIONS_MIRROR, FIELD(ring_bytes), 4 << 20, 3ULL << 30, NULL, "SIZE",
	  "receive ring of the mirror (default: 64M)" },
	{ "metrics", KIND_METRICS, BOTH, FIELD(metrics), 0, 0, NULL, "ADDR|off",
	  "where Prometheus finds the figures (default: the first free port from "
	  "127.0.0.1:7480 on)" },
	{ "threads", KIND_UINT, BOTH, FIELD(threads), 1, 16, NULL, "N",
	  "threads that serve requests (default: one a processor, 2 to 16)" },
	{ "uring", KIND_CHOICE, BOTH, FIELD(uring), 0, 0, "auto|off", "auto|off",
	  "take requests over io_uring where the kernel offers it (default: auto)" },
	{ "tuner", KIND_CHOICE, OPTIONS_MOUNT, FIELD(tuner), 0, 0, "on|off", "on|off",
	  "move lanes, poll_us, batches and mr_cache_size with the load (default: on)" },
	{ "tuner_policy", KIND_CHOICE, OPTIONS_MOUNT, FIELD(tuner_policy), 0, 0,
	  "xgboost|bandit|qlearning|static", "xgboost|bandit|qlearning|static",
	  "what chooses the steps; static only measures (default: xgboost)" },
	{ "xattr", KIND_FLAG, BOTH, FIELD(xattr), 0, 0, NULL, NULL,
	  "extended attributes (each cached write then costs one more request)" },
	{ "ro", KIND_FLAG, OPTIONS_MOUNT, FIELD(ro), 0, 0, NULL, NULL, "read-only" },
	{ "promote", KIND_FLAG, OPTIONS_MOUNT, FIELD(promote), 0, 0, NULL, NULL,
	  "make a mirror's volume the primary's, in a new epoch; only when the old primary is gone "
	  "for good" },
	{ "force", KIND_FLAG, OPTIONS_MOUNT, FIELD(force), 0, 0, NULL, NULL,
	  "with promote: also a mirror that was not in sync; what it lacks is lost" },
	{ "noatime", KIND_FLAG, OPTIONS_MOUNT, FIELD(noatime), 0, 0, NULL, NULL,
	  "never update access times" },
	{ "nodiratime", KIND_FLAG, OPTIONS_MOUNT, FIELD(nodiratime), 0, 0, NULL, NULL,
	  "never update directories' access times" },
	{ "allow_other", KIND_FLAG, BOTH, FIELD(allow_other), 0, 0, NULL, NULL,
	  "users beside the one who mounts may use it (default: on for root)" },
};
#define OPTION_COUNT (sizeof(option_table) / sizeof(option_table[0]))

const struct option_def *option_at(size_t index)
{
	return index < OPTION_COUNT ? &option_table[index] : NULL;
}

void options_init(struct options *o, enum options_role role)
{
	memset(o, 0, sizeof(*o));
	o->role = role;
	o->protocol = COMMIT_PROTOCOL_C;
	o->transport = ADDR_AUTO;
	o->min_mirrors = OPTIONS_MAJORITY;
	o->timeout_s = 30;
	o->early_truncate = OPTIONS_OFF;
	o->connect_s = 30;
	o->lanes = role == OPTIONS_MIRROR ? 40 : 0;
	o->poll_us = TRANSPORT_POLL_US_DEFAULT;
	o->ack_timeout = 14;
	o->mr_cache_bytes = 64 << 20;
	o->allow_other = geteuid() == 0;
	snprintf(o->metrics.at.host, sizeof(o->metrics.at.host), "%s", OPTIONS_METRICS_HOST);
	o->metrics.at.port = OPTIONS_METRICS_PORT;
	static_assert(OPTION_COUNT <= sizeof(o->source), "options.source");
}

/* Words from a column on, the first line being there already, up to a terminal's usual width. */
static void print_wrapped(FILE *out, const char *text)
{
	size_t at = HELP_COLUMN;

	while (*text) {
		size_t word = strcspn(text, " ");

		if (at > HELP_COLUMN && at + 1 + word > HELP_WIDTH) {
			fprintf(out, "\n%*s", HELP_COLUMN, "");
			at = HELP_COLUMN;
		} else if (at > HELP_COLUMN) {
			fputc(' ', out);
			at++;
		}
		fprintf(out, "%.*s", (int)word, text);
		at += word;
		text += word + strspn(text + word, " ");
	}
	fputc('\n', out);
}

void options_help(enum options_role role, FILE *out)
{
	char left[64];
	size_t i;

	for (i = 0; i < OPTION_COUNT; i++) {
		const struct option_def *d = &option_table[i];

		if (!(d->roles & role))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", d->name, d->arg ? "=" : "",
			 d->arg ? d->arg : "");
		fprintf(out, "  %-26s", left);
		if (strlen(left) > HELP_COLUMN - 3)
			fprintf(out, "\n%*s", HELP_COLUMN, "");
		print_wrapped(out, d->help);
	}
}
