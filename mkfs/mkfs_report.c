/* SPDX-License-Identifier: Apache-2.0 */
/* What mkfs.kvfs says of what it made: see mkfs_report.h. */
#include "mkfs/mkfs_report.h"

#include "common/json_text.h"
#include "common/units.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

static uint64_t checkpoint_room(const struct mkfs_report *r)
{
	uint64_t logs = r->plan->log_device[0] ? 0 : r->plan->log_bytes;

	return r->place->free_bytes > logs ? r->place->free_bytes - logs : 0;
}

void mkfs_report_text(const struct mkfs_report *r)
{
	char uuid[VOLUME_UUID_TEXT_BYTES], pool[UNITS_TEXT_BYTES], room[UNITS_TEXT_BYTES];
	const struct place *p = r->place;

	printf("%s %s\n", r->made ? "Made volume" : "Would make volume", p->path);
	if (r->made || r->plan->joins)
		printf("  UUID     %s%s\n", volume_uuid_format(r->plan->uuid, uuid),
		       r->plan->joins ? " (joined)" : "");
	if (r->plan->label[0])
		printf("  label    %s\n", r->plan->label);
	if (r->made)
		printf("  node     %08x\n", r->super.node_id);
	if (r->plan->log_device[0])
		printf("  logs     %s and %s, %s in all\n", r->plan->log_device[0],
		       r->plan->log_device[1], units_format_size(r->plan->log_bytes, pool));
	else
		printf("  logs     2 x %s\n", units_format_size(r->plan->log_bytes / 2, pool));
	printf("  room     %s for checkpoints\n", units_format_size(checkpoint_room(r), room));
	printf("  storage  %s on %s\n", p->fs_type, p->fs_source);
	printf("  medium   %s\n", place_medium_text(r->medium));
	if (r->made && p->is_block)
		printf("  key      in it (--key-copy FILE gives a copy, which a mirror is made "
		       "with)\n");
	else if (r->made)
		printf("  key      %s/%s (keep it secret; a mirror is made with --join and a copy "
		       "of it)\n",
		       p->path, VOLUME_KEY_NAME);
}

int mkfs_report_json(const struct mkfs_report *r)
{
	const struct place *p = r->place;
	char uuid[VOLUME_UUID_TEXT_BYTES];
	json_t *j = json_pack(
	    "{s:o, s:b, s:s, s:b, s:I, s:I, s:I, s:s, s:b, s:s, s:o}", "volume",
	    json_text(p->path), "made", r->made, "label", r->plan->label, "joined",
	    r->plan->joins, "format_version", (json_int_t)VOLUME_FORMAT_VERSION, "log_bytes",
	    (json_int_t)r->plan->log_bytes, "checkpoint_room_bytes",
	    (json_int_t)checkpoint_room(r), "medium",
	    place_medium_name(r->medium), "persistent_memory", r->medium == PLACE_PMEM, "fs_type",
	    p->fs_type, "fs_source", json_text(p->fs_source));

	if (!j)
		return -ENOMEM;
	if (r->plan->log_device[0])
		json_object_set_new(j, "log_devices",
				    json_pack("[o, o]", json_text(r->plan->log_device[0]),
					      json_text(r->plan->log_device[1])));
	if (r->made || r->plan->joins)
		json_object_set_new(j, "uuid",
				    json_string(volume_uuid_format(r->plan->uuid, uuid)));
	if (r->made)
		json_object_set_new(j, "node_id", json_sprintf("%08x", r->super.node_id));
	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(j);
	return 0;
}
