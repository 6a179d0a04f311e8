/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_REPL_FORMAT_H
#define KVFS_REPLICATION_REPL_FORMAT_H
/*
 * What primary and mirror say to each other besides records: frames on the control connection and
 * the acknowledgement slots in the primary's window. All integers are big-endian, no implicit
 * padding.
 *
 *   primary                                 mirror
 *   HELLO      features, volume, nonce  →
 *                                       ←   CHALLENGE  features, nonce, proof     (or REFUSE)
 *   JOIN       who, epoch, wants, proof →
 *                                       ←   WELCOME    where it stands, proof     (or REFUSE)
 *   EPOCHS     history of its log       →
 *   RESYNC_BEGIN, (FILE, DATA …) …, RESYNC_END →                                  (when needed)
 *                                       ←   RESYNC_PROGRESS …, RESYNC_DONE
 *   START                               →   then the transport's own exchange, same connection
 *   LANES_LOST   while records flow     →
 *                                       ←   LANES_READY  then the transport's exchange a lane
 *
 * A proof is BLAKE2b keyed with the volume key over a role label and every message so far, the
 * proof's own bytes left out. Neither side says more than nonces and the volume's UUID before the
 * other has proved the key.
 */
#include "log/epoch.h"

#include <assert.h>
#include <stdint.h>

#define REPL_MAGIC 0x4B564643U     /* "KVFC" */
#define REPL_VERSION 2
/* Bits this build knows. An unknown one of the peer refuses it, of the compatible ones it means
 * nothing. */
#define REPL_FEATURE_INCOMPAT 0U
#define REPL_FEATURE_COMPAT REPL_COMPAT_PROGRESS
/* a primary takes RESYNC_PROGRESS */
#define REPL_COMPAT_PROGRESS 1U
#define REPL_PROOF_BYTES 32
#define REPL_NONCE_BYTES 32
#define REPL_TEXT_BYTES 120
#define REPL_NAME_BYTES 64
#define REPL_DATA_BYTES_MAX (1U << 20) /* bytes of a file in one frame */
#define REPL_SMALL_BYTES_MAX 256       /* payload of every frame but DATA and EPOCHS */

/* Records above the last acknowledged one that a mirror can hold; the primary sends no more. */
#define REPL_WINDOW_RECORDS 16384
/* The primary's window: slots that the mirror fills in turn. */
#define REPL_ACK_WINDOW_BYTES 4096
#define REPL_ACK_SLOT_BYTES 128
#define REPL_ACK_SLOTS (REPL_ACK_WINDOW_BYTES / REPL_ACK_SLOT_BYTES)
/* Behind them slots for the mirror's load (load_format.h), where no datagram brings it. */
#define REPL_LOAD_SLOTS 4
#define REPL_LOAD_SLOT_BYTES 128
#define REPL_PRIMARY_WINDOW_BYTES (2 * REPL_ACK_WINDOW_BYTES)
static_assert(REPL_LOAD_SLOTS * REPL_LOAD_SLOT_BYTES <= REPL_ACK_WINDOW_BYTES, "load slots");
/* Immediate value of a notice without bytes: the sender leaves in good order. */
#define REPL_IMM_GOODBYE 0xFFFFFF02U
/* From the primary, always on lane 0, so that they stay in order: from now on nothing is
 * acknowledged without this mirror; and, it may be. */
#define REPL_IMM_IN_SYNC 0xFFFFFF03U
#define REPL_IMM_OUT_OF_SYNC 0xFFFFFF04U
#define REPL_SYNC_LANE 0
#define REPL_LANES_MAX 40
/* From the mirror: its load is in the slot of its sequence number. */
#define REPL_IMM_LOAD 0xFFFFFF05U

static inline uint64_t load_slot_offset(uint64_t sequence)
{
	return REPL_ACK_WINDOW_BYTES + sequence % REPL_LOAD_SLOTS * REPL_LOAD_SLOT_BYTES;
}

enum repl_frame_type {
	REPL_HELLO = 1,
	REPL_CHALLENGE,
	REPL_JOIN,
	REPL_WELCOME,
	REPL_REFUSE,
	REPL_START,
	REPL_RESYNC_BEGIN,
	REPL_RESYNC_FILE,
	REPL_RESYNC_DATA,
	REPL_RESYNC_END,
	REPL_RESYNC_DONE,
	REPL_EPOCHS, /* epochs_encode of log/epoch.h */
	REPL_LANES_LOST,
	REPL_LANES_READY,
	REPL_RESYNC_PROGRESS,
	REPL_FRAME_TYPE_END
};

enum repl_refusal {
	REPL_REFUSE_VERSION = 1,
	REPL_REFUSE_OTHER_VOLUME,
	REPL_REFUSE_WRONG_KEY,
	REPL_REFUSE_STALE_EPOCH,
	REPL_REFUSE_ARENA,
	REPL_REFUSE_BUSY,
	REPL_REFUSE_TRANSPORT,
	REPL_REFUSE_FAILED, /* the mirror has stopped: divergence, dead log */
	REPL_REFUSE_OTHER_PRIMARY, /* the term is another node's: two were promoted */
	REPL_REFUSE_TWICE,  /* another link of the same primary has the session */
	REPL_REFUSE_OTHER_LIFE, /* another copy of its volume began that epoch */
	REPL_REFUSE_NO_MEMORY, /* for what the mirror has acknowledged already: it tries again */
	REPL_REFUSE_END
};

enum repl_transport { REPL_TRANSPORT_TCP = 1, REPL_TRANSPORT_SHM = 2, REPL_TRANSPORT_VERBS = 3 };

struct repl_frame {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t len;       /* payload bytes that follow */
	uint32_t checksum;  /* CRC32C over payload, then this header with checksum zero */
} __attribute__((packed));
static_assert(sizeof(struct repl_frame) == 16, "frame");

struct repl_hello {
	uint32_t feature_incompat;
	uint32_t feature_compat;
	uint8_t uuid[16];
	uint8_t nonce[REPL_NONCE_BYTES];
} __attribute__((packed));
static_assert(sizeof(struct repl_hello) == 56, "hello");

struct repl_challenge {
	uint32_t feature_incompat;
	uint32_t feature_compat;
	uint8_t nonce[REPL_NONCE_BYTES];
	uint8_t proof[REPL_PROOF_BYTES];
} __attribute__((packed));
static_assert(sizeof(struct repl_challenge) == 72, "challenge");

struct repl_join {
	uint64_t epoch;
	uint64_t arena_bytes;
	uint64_t last_lsn;   /* of the primary's log */
	uint32_t node_id;
	uint32_t timeout_ms;
	uint16_t lanes;
	uint8_t transport;
	uint8_t protocol;    /* 0 A, 1 B, 2 C */
	uint32_t link;       /* of the primary: 24 bits drawn by its process, 8 the link's index */
	uint32_t life;       /* of its epoch; not zero */
	uint8_t proof[REPL_PROOF_BYTES];
} __attribute__((packed));
static_assert(sizeof(struct repl_join) == 76, "join");

struct repl_welcome {
	uint64_t last_lsn;       /* in its log and store */
	uint64_t last_epoch;     /* of that record, 0 when not known */
	uint64_t promised_epoch;
	uint64_t ring_bytes;
	uint64_t arena_bytes;
	uint32_t node_id;
	uint32_t window_records;
	uint16_t lanes;
	uint8_t zero[2];
	uint32_t last_node;      /* whose record that is, 0 when not known */
	uint32_t last_life;      /* of last_epoch, 0 when not known */
	uint8_t proof[REPL_PROOF_BYTES];
} __attribute__((packed));
static_assert(sizeof(struct repl_welcome) == 92, "welcome");

struct repl_refuse {
	uint16_t code;
	uint8_t zero[6];
	char text[REPL_TEXT_BYTES];      /* printable ASCII, NUL-padded */
	uint8_t proof[REPL_PROOF_BYTES]; /* zero when the key is not proved yet */
} __attribute__((packed));
static_assert(sizeof(struct repl_refuse) == 160, "refuse");

struct repl_start {
	uint64_t next_lsn; /* of the first record to come: the mirror's last + 1 */
} __attribute__((packed));
static_assert(sizeof(struct repl_start) == 8, "start");

struct repl_resync_begin {
	uint64_t lsn;
	uint64_t epoch;
	uint64_t total_bytes;
	uint64_t file_count;
} __attribute__((packed));
static_assert(sizeof(struct repl_resync_begin) == 32, "resync begin");

struct repl_resync_file {
	uint64_t bytes;
	char name[REPL_NAME_BYTES]; /* plain file name, NUL-padded */
} __attribute__((packed));
static_assert(sizeof(struct repl_resync_file) == 72, "resync file");

struct repl_resync_done {
	uint64_t lsn; /* of the installed image */
} __attribute__((packed));
static_assert(sizeof(struct repl_resync_done) == 8, "resync done");

/* Now and then while the image is installed. */
struct repl_resync_progress {
	uint64_t installed_bytes; /* of the image's total_bytes */
} __attribute__((packed));
static_assert(sizeof(struct repl_resync_progress) == 8, "resync progress");

/* One slot of the primary's window; slot number = sequence modulo REPL_ACK_SLOTS. */
struct repl_ack {
	uint32_t magic;
	uint16_t version;
	uint16_t zero;
	uint64_t sequence;      /* from 1, rises by one with each acknowledgement of a session */
	uint64_t received_lsn;  /* cumulative: in the mirror's memory */
	uint64_t durable_lsn;   /* in its log */
	uint64_t applied_lsn;   /* in its store */
	/* cumulative position in the ring, bytes skipped at its end included */
	uint64_t ring_freed;
	uint64_t heartbeats;    /* of the primary seen in this session */
	uint32_t checksum;      /* CRC32C with this field zero */
	uint32_t zero2;
} __attribute__((packed));
static_assert(sizeof(struct repl_ack) == 64, "acknowledgement");
static_assert(sizeof(struct repl_ack) <= REPL_ACK_SLOT_BYTES, "acknowledgement slot");

/* Lanes are dead and are to be made anew; the primary posts nothing more until they are. */
struct repl_lanes_lost {
	uint64_t lanes;      /* bit n: lane n */
	uint32_t generation; /* of the new ones: from 1, rises by one in a session */
	uint32_t zero;
	/* notices on each lane since it was made, modulo 2^32: those of living lanes are still to
	 * be taken */
	uint32_t posted[REPL_LANES_MAX];
} __attribute__((packed));
static_assert(sizeof(struct repl_lanes_lost) == 176, "lanes lost");

/* All that was posted on living lanes is taken, and nothing can come on the dead ones. What is
 * behind received_lsn the mirror has forgotten: it is to be sent again, from ring_pos on. */
struct repl_lanes_ready {
	uint64_t lanes;      /* all that are dead: those of LANES_LOST, perhaps more */
	uint64_t ring_pos;   /* cumulative position of the record after received_lsn */
	uint32_t generation;
	uint32_t zero;
	struct repl_ack ack; /* as things stand; takes its sequence number */
} __attribute__((packed));
static_assert(sizeof(struct repl_lanes_ready) == 88, "lanes ready");
static_assert(sizeof(struct repl_lanes_lost) <= REPL_SMALL_BYTES_MAX, "frame");

#endif
