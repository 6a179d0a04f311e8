/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the superblock decoder. What it accepts must encode back to something it accepts
 * with the same meaning. Each input is tried as it is and with its checksum put right, else few
 * pass.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "log/volume.h"
#include "log/volume_format.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct volume_super *s)
{
	uint8_t again[VOLUME_SUPER_BYTES];
	struct volume_super t;

	volume_super_encode(s, again);
	if (volume_super_decode(again, &t) != 0 || memcmp(s->uuid, t.uuid, sizeof(t.uuid)) != 0 ||
	    strcmp(s->label, t.label) != 0 || s->state != t.state || s->node_id != t.node_id ||
	    s->sequence != t.sequence || s->log_bytes != t.log_bytes ||
	    s->promised_epoch != t.promised_epoch || s->is_pmem != t.is_pmem ||
	    s->promised_node != t.promised_node ||
	    s->promised_life != t.promised_life || s->sync_epoch != t.sync_epoch ||
	    s->sync_count != t.sync_count ||
	    memcmp(s->sync_nodes, t.sync_nodes, sizeof(t.sync_nodes)) != 0 ||
	    !epochs_equal(&s->epochs, &t.epochs))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[VOLUME_SUPER_BYTES] = { 0 };
	const size_t at = offsetof(struct volume_media, checksum);
	struct volume_super s;

	memcpy(buf, data, size < sizeof(buf) ? size : sizeof(buf));
	if (volume_super_decode(buf, &s) == 0)
		check_round_trip(&s);
	put_be32(buf + at, 0);
	put_be32(buf + at, crc32c(0, buf, sizeof(buf)));
	if (volume_super_decode(buf, &s) == 0)
		check_round_trip(&s);
	return 0;
}
