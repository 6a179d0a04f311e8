/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for what the peer of a verbs session sends: messages on the control connection, the
 * private data of a lane's request and acceptance, and the line that makes a way for datagrams.
 * The first byte chooses which, the second the lane that is meant; a line's checksum is put right
 * where the second is odd. Corpus: tests/fuzz/corpus/verbs.
 */
#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Memory of just its size: what is read beyond is seen. */
static void *exactly(const uint8_t *data, size_t size, size_t want)
{
	void *p = calloc(1, want ? want : 1);

	must(p != NULL);
	memcpy(p, data, size < want ? size : want);
	return p;
}

static void offer(const uint8_t *data, size_t size)
{
	struct verbs_offer *o = exactly(data, size, sizeof(*o));
	uint64_t bytes;
	unsigned lanes;

	if (verbs_offer_decode(o, &lanes, &bytes) == 0)
		must(lanes > 0 && lanes <= TRANSPORT_LANES_MAX && bytes > 0 && bytes % 4096 == 0);
	free(o);
}

static void answer(const uint8_t *data, size_t size, unsigned lanes)
{
	struct verbs_answer *a = exactly(data, size, sizeof(*a));

	if (verbs_answer_check(a, lanes) == 0)
		must(get_be16(a->lanes) > 0 && get_be16(a->lanes) <= lanes &&
		     get_be16(a->port) > 0);
	free(a);
}

static void status(const uint8_t *data, size_t size)
{
	struct verbs_status *s = exactly(data, size, sizeof(*s));
	unsigned version = UINT16_MAX + 1U;
	int err = verbs_status_decode(s, &version);

	must(err == 0 || err == -EPROTO || err == -ECONNABORTED || err == -EPROTONOSUPPORT);
	must((err == -EPROTONOSUPPORT) == (version <= UINT16_MAX));
	free(s);
}

/* rdma_cm gives as many bytes as it likes, 196 at most, or none. */
static void private_data(const uint8_t *data, size_t size, unsigned lane)
{
	void *bytes = size ? exactly(data, size, size) : NULL;
	struct verbs_lane_accept a;
	struct verbs_lane_hello h;

	if (verbs_hello_decode(bytes, size, &h) == 0)
		must(size >= sizeof(h) && get_be16(h.lane) < TRANSPORT_LANES_MAX &&
		     get_be32(h.target.mtu_bytes) <= 4096);
	if (verbs_accept_decode(bytes, size, lane, &a) == 0)
		must(size >= sizeof(a) && get_be16(a.lane) == lane);
	free(bytes);
}

static void line(const uint8_t *data, size_t size, bool sum)
{
	struct verbs_datagram_line *w = exactly(data, size, sizeof(*w)), again;
	struct verbs_datagram d;

	if (sum) {
		put_be32(w->checksum, 0);
		put_be32(w->checksum, crc32c(0, w, sizeof(*w)));
	}
	if (verbs_datagram_decode(w, &d) == 0) {
		must(d.generation > 0 && d.qpn < 1U << 24 && d.psn < 1U << 24);
		verbs_datagram_encode(&d, &again);
		must(memcmp(&again, w, sizeof(again)) == 0);
	}
	free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] % 5) {
	case 0:
		offer(data + 2, size - 2);
		break;
	case 1:
		answer(data + 2, size - 2, data[1] % TRANSPORT_LANES_MAX);
		break;
	case 2:
		private_data(data + 2, size - 2, data[1] % TRANSPORT_LANES_MAX);
		break;
	case 3:
		line(data + 2, size - 2, data[1] % 2);
		break;
	default:
		status(data + 2, size - 2);
	}
	return 0;
}
