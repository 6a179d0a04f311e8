/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders and decoders of the handshake: pure, everything from the peer is checked before use. */
#include "replication/handshake.h"

#include "common/byteorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool handshake_is_zero(const uint8_t *p, size_t len)
{
	uint8_t any = 0;

	for (size_t i = 0; i < len; i++)
		any |= p[i];
	return any == 0;
}

void handshake_join_encode(const struct handshake_join *j, struct repl_join *ret_wire)
{
	*ret_wire = (struct repl_join){
		.epoch = htobe64(j->epoch),
		.arena_bytes = htobe64(j->arena_bytes),
		.last_lsn = htobe64(j->last_lsn),
		.node_id = htobe32(j->node_id),
		.timeout_ms = htobe32(j->timeout_ms),
		.lanes = htobe16((uint16_t)j->lanes),
		.transport = (uint8_t)j->transport,
		.protocol = (uint8_t)j->protocol,
		.link = htobe32(j->link),
		.life = htobe32(j->life),
	};
}

void handshake_welcome_encode(const struct handshake_welcome *w, struct repl_welcome *ret_wire)
{
	*ret_wire = (struct repl_welcome){
		.last_lsn = htobe64(w->last_lsn),
		.last_epoch = htobe64(w->last_epoch),
		.promised_epoch = htobe64(w->promised_epoch),
		.ring_bytes = htobe64(w->ring_bytes),
		.arena_bytes = htobe64(w->arena_bytes),
		.node_id = htobe32(w->node_id),
		.window_records = htobe32(w->window_records),
		.lanes = htobe16((uint16_t)w->lanes),
		.last_node = htobe32(w->last_node),
		.last_life = htobe32(w->last_life),
	};
}

void handshake_refuse_encode(const struct handshake_refusal *r, struct repl_refuse *ret_wire)
{
	*ret_wire = (struct repl_refuse){ .code = htobe16((uint16_t)r->code) };
	snprintf(ret_wire->text, sizeof(ret_wire->text), "%s", r->text);
}

int handshake_hello_decode(const void *in, size_t len, struct repl_hello *ret_hello)
{
	struct repl_hello w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (be32toh(w.feature_incompat) & ~REPL_FEATURE_INCOMPAT)
		return -EPROTONOSUPPORT;
	*ret_hello = w;
	return 0;
}

int handshake_challenge_decode(const void *in, size_t len, struct repl_challenge *ret_challenge)
{
	struct repl_challenge w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (be32toh(w.feature_incompat) & ~REPL_FEATURE_INCOMPAT)
		return -EPROTONOSUPPORT;
	*ret_challenge = w;
	return 0;
}

int handshake_join_decode(const void *in, size_t len, struct handshake_join *ret_join)
{
	struct repl_join w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (w.protocol > 2 || be32toh(w.timeout_ms) == 0 || be16toh(w.lanes) == 0 ||
	    w.life == 0 || w.transport < REPL_TRANSPORT_TCP || w.transport > REPL_TRANSPORT_VERBS)
		return -EBADMSG;
	*ret_join = (struct handshake_join){
		.epoch = be64toh(w.epoch),
		.arena_bytes = be64toh(w.arena_bytes),
		.last_lsn = be64toh(w.last_lsn),
		.node_id = be32toh(w.node_id),
		.timeout_ms = be32toh(w.timeout_ms),
		.lanes = be16toh(w.lanes),
		.transport = (enum repl_transport)w.transport,
		.protocol = w.protocol,
		.link = be32toh(w.link),
		.life = be32toh(w.life),
	};
	return 0;
}

int handshake_welcome_decode(const void *in, size_t len, struct handshake_welcome *ret_welcome)
{
	struct repl_welcome w;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (!handshake_is_zero(w.zero, sizeof(w.zero)) || be16toh(w.lanes) == 0 ||
	    be32toh(w.window_records) == 0 || be64toh(w.ring_bytes) == 0 ||
	    be64toh(w.ring_bytes) % 4096 != 0 || be64toh(w.last_lsn) == UINT64_MAX)
		return -EBADMSG;
	*ret_welcome = (struct handshake_welcome){
		.last_lsn = be64toh(w.last_lsn),
		.last_epoch = be64toh(w.last_epoch),
		.promised_epoch = be64toh(w.promised_epoch),
		.ring_bytes = be64toh(w.ring_bytes),
		.arena_bytes = be64toh(w.arena_bytes),
		.node_id = be32toh(w.node_id),
		.window_records = be32toh(w.window_records),
		.lanes = be16toh(w.lanes),
		.last_node = be32toh(w.last_node),
		.last_life = be32toh(w.last_life),
	};
	return 0;
}

int handshake_refuse_decode(const void *in, size_t len, struct handshake_refusal *ret_refusal)
{
	struct repl_refuse w;
	unsigned code;

	if (len != sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	code = be16toh(w.code);
	if (code < REPL_REFUSE_VERSION || code >= REPL_REFUSE_END ||
	    !handshake_is_zero(w.zero, sizeof(w.zero)) || w.text[sizeof(w.text) - 1] != '\0')
		return -EBADMSG;
	/* It goes to a terminal or a journal: nothing but printable ASCII. */
	for (size_t i = 0; i < sizeof(w.text) && w.text[i] != '\0'; i++)
		if (w.text[i] < ' ' || w.text[i] > '~')
			return -EBADMSG;
	ret_refusal->code = (enum repl_refusal)code;
	memcpy(ret_refusal->text, w.text, sizeof(w.text));
	return 0;
}

int handshake_refusal_errno(enum repl_refusal code)
{
	switch (code) {
	case REPL_REFUSE_VERSION:
		return -EPROTONOSUPPORT;
	case REPL_REFUSE_OTHER_VOLUME:
		return -EXDEV;
	case REPL_REFUSE_WRONG_KEY:
		return -EKEYREJECTED;
	case REPL_REFUSE_STALE_EPOCH:
	case REPL_REFUSE_OTHER_PRIMARY:
	case REPL_REFUSE_OTHER_LIFE:
		return -ESTALE;
	case REPL_REFUSE_ARENA:
		return -ENOSPC;
	case REPL_REFUSE_BUSY:
		return -EBUSY;
	case REPL_REFUSE_TRANSPORT:
		return -ENOTSUP;
	case REPL_REFUSE_TWICE:
		return -ENOTUNIQ;
	case REPL_REFUSE_NO_MEMORY:
		return -ENOMEM; /* no refusal for good */
	case REPL_REFUSE_FAILED:
	case REPL_REFUSE_END:
		break;
	}
	return -EIO;
}
