/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoders of what the peer sends while lanes and datagrams are set up: each checks all that
 * can be checked without knowing more. Pure; any thread.
 */
#include "replication/transport/transport_verbs_format.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "replication/transport/transport_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define QPN_MAX 0xFFFFFFU /* queue pair and packet numbers have 24 bits */

int verbs_status_decode(const struct verbs_status *s, unsigned *ret_version)
{
	unsigned version = get_be16(s->version), err = get_be16(s->err);

	if (get_be32(s->magic) != VERBS_MAGIC_STATUS)
		return -EPROTO;
	/* what a mute one finds nonsense is our version */
	if (err == EPROTONOSUPPORT || (version == 0 && err == EPROTO)) {
		*ret_version = version;
		return -EPROTONOSUPPORT;
	}
	return err ? -ECONNABORTED : 0;
}

int verbs_offer_decode(const struct verbs_offer *o, unsigned *ret_lanes, uint64_t *ret_window_bytes)
{
	unsigned lanes = get_be16(o->lanes);
	uint64_t bytes = get_be64(o->window_bytes);

	if (get_be32(o->magic) != VERBS_MAGIC_OFFER)
		return -EPROTO;
	if (get_be16(o->version) != VERBS_FORMAT_VERSION)
		return -EPROTONOSUPPORT;
	if (transport_check_shape(lanes, bytes) < 0)
		return -EPROTO;
	*ret_lanes = lanes;
	*ret_window_bytes = bytes;
	return 0;
}

int verbs_answer_check(const struct verbs_answer *a, unsigned lanes_max)
{
	if (get_be32(a->magic) != VERBS_MAGIC_ANSWER)
		return -EPROTO;
	if (get_be16(a->version) != VERBS_FORMAT_VERSION)
		return -EPROTONOSUPPORT;
	if (transport_check_shape(get_be16(a->lanes), get_be64(a->window_bytes)) < 0 ||
	    get_be16(a->lanes) > lanes_max || get_be16(a->port) == 0)
		return -EPROTO;
	return 0;
}

/* A port has packets of 256, 512, … 4096 bytes; 0: not told. */
static bool mtu_valid(uint32_t bytes)
{
	return bytes == 0 || (bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0);
}

int verbs_hello_decode(const void *data, size_t len, struct verbs_lane_hello *ret_h)
{
	struct verbs_lane_hello h;

	if (!data || len < sizeof(h))
		return -EPROTO;
	memcpy(&h, data, sizeof(h));
	if (get_be32(h.magic) != VERBS_MAGIC_LANE || get_be16(h.version) != VERBS_FORMAT_VERSION ||
	    get_be16(h.lane) >= TRANSPORT_LANES_MAX ||
	    !mtu_valid(get_be32(h.target.mtu_bytes)))
		return -EPROTO;
	*ret_h = h;
	return 0;
}

int verbs_accept_decode(const void *data, size_t len, unsigned lane,
			struct verbs_lane_accept *ret_a)
{
	struct verbs_lane_accept a;

	if (!data || len < sizeof(a))
		return -EPROTO;
	memcpy(&a, data, sizeof(a));
	if (get_be32(a.magic) != VERBS_MAGIC_LANE || get_be16(a.version) != VERBS_FORMAT_VERSION ||
	    get_be16(a.lane) != lane || !mtu_valid(get_be32(a.target.mtu_bytes)))
		return -EPROTO;
	*ret_a = a;
	return 0;
}

void verbs_datagram_encode(const struct verbs_datagram *d, struct verbs_datagram_line *ret_w)
{
	struct verbs_datagram_line w = { 0 };

	put_be32(w.magic, VERBS_MAGIC_DATAGRAM);
	put_be16(w.version, VERBS_FORMAT_VERSION);
	put_be32(w.generation, d->generation);
	put_be32(w.qpn, d->qpn);
	put_be32(w.psn, d->psn);
	put_be32(w.checksum, crc32c(0, &w, sizeof(w)));
	*ret_w = w;
}

int verbs_datagram_decode(const void *line, struct verbs_datagram *ret_d)
{
	struct verbs_datagram_line w;
	uint32_t sum;

	memcpy(&w, line, sizeof(w)); /* the peer can still write to it */
	sum = get_be32(w.checksum);
	put_be32(w.checksum, 0);
	if (get_be32(w.magic) != VERBS_MAGIC_DATAGRAM ||
	    get_be16(w.version) != VERBS_FORMAT_VERSION || crc32c(0, &w, sizeof(w)) != sum ||
	    get_be16(w.zero) != 0 || get_be32(w.generation) == 0 || get_be32(w.qpn) > QPN_MAX ||
	    get_be32(w.psn) > QPN_MAX)
		return -EPROTO;
	*ret_d = (struct verbs_datagram){ .generation = get_be32(w.generation),
					  .qpn = get_be32(w.qpn),
					  .psn = get_be32(w.psn) };
	return 0;
}
