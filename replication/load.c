/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of a mirror's load: see load.h. */
#include "replication/load.h"

#include "common/byteorder.h"
#include "common/crc32c.h"

#include <errno.h>
#include <string.h>

void load_encode(const struct load *l, void *out)
{
	struct repl_load w = {
		.magic = htobe32(LOAD_MAGIC),
		.version = htobe16(LOAD_VERSION),
		.epoch = htobe64(l->epoch),
		.sequence = htobe64(l->sequence),
		.apply_lag = htobe64(l->apply_lag),
		.node_id = htobe32(l->node_id),
		.cpu_permille = htobe32(l->cpu_permille),
		.log_permille = htobe32(l->log_permille),
		.ring_permille = htobe32(l->ring_permille),
		.period_ms = htobe32(l->period_ms),
	};

	w.checksum = htobe32(crc32c(0, &w, sizeof(w)));
	memcpy(out, &w, sizeof(w));
}

int load_decode(const void *in, size_t len, struct load *ret_load)
{
	struct repl_load w;
	struct load l;
	uint32_t sum;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (be32toh(w.magic) != LOAD_MAGIC || be16toh(w.version) != LOAD_VERSION)
		return -EBADMSG;
	sum = be32toh(w.checksum);
	w.checksum = 0;
	if (crc32c(0, &w, sizeof(w)) != sum || w.zero != 0 || w.zero2[0] != 0 || w.zero2[1] != 0)
		return -EBADMSG;
	l = (struct load){
		.epoch = be64toh(w.epoch),
		.sequence = be64toh(w.sequence),
		.apply_lag = be64toh(w.apply_lag),
		.node_id = be32toh(w.node_id),
		.cpu_permille = be32toh(w.cpu_permille),
		.log_permille = be32toh(w.log_permille),
		.ring_permille = be32toh(w.ring_permille),
		.period_ms = be32toh(w.period_ms),
	};
	if (l.sequence == 0 || l.cpu_permille > LOAD_PERMILLE_MAX || l.log_permille > 1000 ||
	    l.ring_permille > 1000 || l.period_ms == 0)
		return -EBADMSG;
	*ret_load = l;
	return 0;
}
