/* The C ABI of the CiuicKafka client. Plain C11; no exception crosses; safe to load from any language.
 *
 * Rules. Functions return 0, or a negative ciuic_trouble and fill *error (may be NULL). Structs that you allocate begin
 * with `size`: set it to sizeof, so that later versions can add fields at the end. Strings are UTF-8 and
 * NUL-terminated, bytes are pointer and length; a NULL pointer is Kafka's null, an empty one is a non-NULL pointer with
 * length 0. What is handed out belongs to the library and says how long it lives. Handles are used by one thread at a
 * time unless said otherwise. In a child forked after a handle was opened every call on it fails with
 * CIUIC_FORKED_CHILD, and freeing it does nothing. */
#ifndef CIUIC_H
#define CIUIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CIUIC_API __attribute__((visibility("default")))
#else
#define CIUIC_API
#endif

/* Grows when something changes that old programs would notice. */
#define CIUIC_ABI_VERSION 1
CIUIC_API uint32_t ciuic_abi_version(void);
CIUIC_API const char* ciuic_version(void);
/* "debug", "info", "warn", "error", "off"; what goes to stderr. 0, or CIUIC_INVALID_ARGUMENT. */
CIUIC_API int32_t ciuic_set_log_level(const char* level);

enum ciuic_trouble {
  CIUIC_INVALID_CONFIG = -1,
  CIUIC_INVALID_ARGUMENT = -2,
  CIUIC_INVALID_STATE = -3,
  CIUIC_TIMED_OUT = -4,
  CIUIC_INTERRUPTED = -5,
  CIUIC_QUEUE_FULL = -6,
  CIUIC_FORKED_CHILD = -7,
  CIUIC_BROKER = -8, /* kafka_code says which */
  CIUIC_DISCONNECTED = -9,
  CIUIC_UNSUPPORTED = -10,
  CIUIC_CORRUPT = -11,
  CIUIC_NO_ONE_SIDED_PATH = -12,
  CIUIC_DATA_LOSS = -13,
  CIUIC_FATAL = -14
};

typedef struct ciuic_error {
  uint32_t size;      /* sizeof(ciuic_error) */
  int32_t code;       /* a ciuic_trouble, or 0 */
  int32_t kafka_code; /* Kafka's error code, or 0 */
  int32_t retriable;  /* the same call may work later */
  char text[512];     /* NUL-terminated, cut if longer */
} ciuic_error;

typedef struct ciuic_config_entry {
  const char* key;
  const char* value;
} ciuic_config_entry;

typedef struct ciuic_topic_partition {
  const char* topic;
  int32_t partition;
  int64_t offset; /* where a call wants or gives one */
} ciuic_topic_partition;

#define CIUIC_OFFSET_BEGINNING ((int64_t)-2)
#define CIUIC_OFFSET_END ((int64_t)-1)
#define CIUIC_OFFSET_STORED ((int64_t)-1000)

/* Where bytes lie. */
enum ciuic_memory { CIUIC_MEMORY_HOST = 0, CIUIC_MEMORY_CUDA = 1 };

/* ---- Consumer ------------------------------------------------------------------------------------------------ */

typedef struct ciuic_consumer ciuic_consumer;
typedef struct ciuic_batch ciuic_batch;
typedef struct ciuic_reader ciuic_reader;

CIUIC_API int32_t ciuic_consumer_open(const ciuic_config_entry* config, size_t count, ciuic_consumer** consumer,
                                      ciuic_error* error);
/* Leaves the group, releases leases, frees the handle. Batches stay usable until freed. NULL is ignored. */
CIUIC_API void ciuic_consumer_close(ciuic_consumer* consumer);

/* Puts the batches of every later poll into `bytes` bytes at `at`, which are `memory` (a ciuic_memory; CUDA: of one
 * device, by its device pointer) and outlive the consumer and all its batches: directly where the card reaches them,
 * else copied (ciuic_consumer_path_json says which, and why). Once, before assign and subscribe. A poll that finds no
 * room because of batches that are still held waits, then gives CIUIC_QUEUE_FULL, retriable; a batch larger than the
 * memory gives it at once, not retriable. CIUIC_INVALID_ARGUMENT: under 4096 bytes, no such memory. CIUIC_UNSUPPORTED:
 * no driver, or not memory of one device of it. */
CIUIC_API int32_t ciuic_consumer_land_in(ciuic_consumer* consumer, int32_t memory, void* at, size_t bytes,
                                         ciuic_error* error);

CIUIC_API int32_t ciuic_consumer_assign(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                                        ciuic_error* error);

/* Called inside ciuic_poll, ciuic_consumer_unsubscribe and ciuic_consumer_close on the caller's thread; it may call the
 * consumer. `event`: 0 assigned, 1 revoked, 2 lost. */
typedef void (*ciuic_rebalance_callback)(void* opaque, int32_t event, const ciuic_topic_partition* partitions,
                                         size_t count);
/* `callback` may be NULL. Names that begin with '^' are regular expressions. */
CIUIC_API int32_t ciuic_consumer_subscribe(ciuic_consumer* consumer, const char* const* topics, size_t count,
                                           ciuic_rebalance_callback callback, void* opaque, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_unsubscribe(ciuic_consumer* consumer, ciuic_error* error);
/* Calls `visit` for each assigned partition; `offset` is its position, or -1. */
CIUIC_API int32_t ciuic_consumer_assignment(ciuic_consumer* consumer,
                                            void (*visit)(void* opaque, const ciuic_topic_partition* partition),
                                            void* opaque, ciuic_error* error);

/* Batches of one partition, in order; *count may be 0 after `timeout_ms`. *batches is an array that lives until the
 * next poll; a batch lives until then too, unless ciuic_batch_retain keeps it. */
CIUIC_API int32_t ciuic_poll(ciuic_consumer* consumer, int64_t timeout_ms, ciuic_batch* const** batches, size_t* count,
                             ciuic_error* error);
/* Makes a poll under way, or the next one, return CIUIC_INTERRUPTED. Any thread. */
CIUIC_API void ciuic_consumer_wakeup(ciuic_consumer* consumer);

/* `offset`: a number, CIUIC_OFFSET_BEGINNING or CIUIC_OFFSET_END. */
CIUIC_API int32_t ciuic_consumer_seek(ciuic_consumer* consumer, const char* topic, int32_t partition, int64_t offset,
                                      ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_seek_to_time(ciuic_consumer* consumer, const char* topic, int32_t partition,
                                              int64_t timestamp_ms, int64_t timeout_ms, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_position(ciuic_consumer* consumer, const char* topic, int32_t partition,
                                          int64_t timeout_ms, int64_t* position, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_pause(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                                       ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_resume(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                                        ciuic_error* error);

/* Without partitions (count 0): what the last poll returned. Waits for the broker if `timeout_ms` > 0; 0 sends and goes
 * on. */
CIUIC_API int32_t ciuic_consumer_commit(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                                        int64_t timeout_ms, ciuic_error* error);
/* Fills `offset` of each entry; -1: none. */
CIUIC_API int32_t ciuic_consumer_committed(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                           int64_t timeout_ms, ciuic_error* error);
/* Fill `offset` of each entry: first and next-after-last readable offset; first offset at or after the time in
 * `offset`. */
CIUIC_API int32_t ciuic_consumer_beginning_offsets(ciuic_consumer* consumer, ciuic_topic_partition* partitions,
                                                   size_t count, int64_t timeout_ms, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_end_offsets(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                             int64_t timeout_ms, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_offsets_for_times(ciuic_consumer* consumer, ciuic_topic_partition* partitions,
                                                   size_t count, int64_t timeout_ms, ciuic_error* error);
CIUIC_API int32_t ciuic_consumer_partition_count(ciuic_consumer* consumer, const char* topic, int64_t timeout_ms,
                                                 int32_t* partitions, ciuic_error* error);
/* Records between position and readable end; -1: not known yet. Any thread. */
CIUIC_API int32_t ciuic_consumer_lag(ciuic_consumer* consumer, const char* topic, int32_t partition, int64_t* records,
                                     ciuic_error* error);

/* JSON texts, NUL-terminated; free with ciuic_text_free. Any thread. NULL: out of memory or a forked child.
 * path: {"path":"one-sided","provider":"shm","reason":"…","landing":"…"}; metrics: [{"name":…,"label":…,"value":…},…].
 */
CIUIC_API char* ciuic_consumer_path_json(ciuic_consumer* consumer, const char* topic, int32_t partition);
CIUIC_API char* ciuic_consumer_metrics_json(ciuic_consumer* consumer);
CIUIC_API char* ciuic_consumer_topics_json(ciuic_consumer* consumer, int64_t timeout_ms, ciuic_error* error);
CIUIC_API void ciuic_text_free(char* text);

/* ---- Batches and records --------------------------------------------------------------------------------------- */

typedef struct ciuic_batch_info {
  uint32_t size; /* sizeof(ciuic_batch_info) */
  int32_t partition;
  const char* topic; /* lives as long as the batch */
  const void* bytes; /* the batch as on the wire, header included */
  size_t length;
  int64_t base_offset;
  int64_t last_offset;
  int64_t first_wanted_offset; /* records below it were not asked for */
  int64_t max_timestamp;
  int32_t leader_epoch;
  int32_t record_count;
  const char* compression; /* "none", … */
  int32_t in_place;        /* the bytes lie in the broker's memory */
  int32_t memory;          /* a ciuic_memory: what `device_bytes` and `length` are of */
  uint64_t device_bytes;   /* CUDA: the batch's device pointer, all writes to it done; `bytes` is NULL then. Host: 0 */
} ciuic_batch_info;

CIUIC_API int32_t ciuic_batch_info_get(const ciuic_batch* batch, ciuic_batch_info* info);
/* A handle of its own on the same bytes, to be freed; keeps memory and lease. Any thread. NULL: out of memory. */
CIUIC_API ciuic_batch* ciuic_batch_retain(const ciuic_batch* batch);
CIUIC_API void ciuic_batch_free(ciuic_batch* batch);
/* 1: the bytes are still guaranteed; 0: a lease ran out, discard what was read from them. Ask after use. Any thread. */
CIUIC_API int32_t ciuic_batch_in_force(const ciuic_batch* batch);
/* The batch in host memory of its own, to be freed. CIUIC_DATA_LOSS: the lease had run out. CIUIC_FATAL: the device
 * that it lies in failed. */
CIUIC_API int32_t ciuic_batch_copy(const ciuic_batch* batch, ciuic_batch** copy, ciuic_error* error);

typedef struct ciuic_header {
  const char* key; /* not NUL-terminated */
  size_t key_length;
  const void* value; /* NULL: null */
  size_t value_length;
} ciuic_header;

typedef struct ciuic_record {
  uint32_t size;          /* sizeof(ciuic_record) */
  int32_t timestamp_type; /* 0 create time, 1 log append time */
  int64_t offset;
  int64_t timestamp;
  const void* key; /* NULL: null */
  size_t key_length;
  const void* value; /* NULL: null */
  size_t value_length;
  const ciuic_header* headers;
  size_t header_count;
} ciuic_record;

/* Walks records, unpacking into a buffer that is used again. */
CIUIC_API ciuic_reader* ciuic_reader_new(void);
CIUIC_API void ciuic_reader_free(ciuic_reader* reader);
/* Keeps `batch` until the next open; NULL: lets go of the one before, and of the buffer where a large batch made it
 * grow. CIUIC_INVALID_STATE: it lies in a device; ciuic_batch_copy brings it to the host. CIUIC_CORRUPT with Kafka's
 * code 10 (MESSAGE_TOO_LARGE): its records unpack to more than the consumer's max.decompressed.batch.bytes. */
CIUIC_API int32_t ciuic_reader_open(ciuic_reader* reader, const ciuic_batch* batch, ciuic_error* error);
/* 1: *record is filled (bytes live until the next open, headers until the next call); 0: the end; negative: malformed.
 */
CIUIC_API int32_t ciuic_reader_next(ciuic_reader* reader, ciuic_record* record, ciuic_error* error);
/* The next records at one go, for languages in which a call costs: how many of `capacity` were filled; 0: the end;
 * negative: malformed (what came before it was handed out). REQUIRES: records[0].size is set; it holds for all of the
 * array. */
CIUIC_API int32_t ciuic_reader_next_many(ciuic_reader* reader, ciuic_record* records, size_t capacity,
                                         ciuic_error* error);

/* ---- Producer -------------------------------------------------------------------------------------------------- */

typedef struct ciuic_producer ciuic_producer;

typedef struct ciuic_record_to_send {
  uint32_t size;     /* sizeof(ciuic_record_to_send) */
  int32_t partition; /* -1: the partitioner chooses */
  const char* topic;
  const void* key; /* NULL: null */
  size_t key_length;
  const void* value; /* NULL: null */
  size_t value_length;
  int64_t timestamp; /* ms since 1970; -1: now */
  const ciuic_header* headers;
  size_t header_count;
} ciuic_record_to_send;

/* Runs on the producer's own thread: be short, do not flush or close in it. `error` is NULL on success; `offset` -1:
 * not known. */
typedef void (*ciuic_delivery_callback)(void* opaque, int32_t partition, int64_t offset, int64_t timestamp,
                                        const ciuic_error* error);

CIUIC_API int32_t ciuic_producer_open(const ciuic_config_entry* config, size_t count, ciuic_producer** producer,
                                      ciuic_error* error);
/* Flushes up to `timeout_ms`, ends, frees the handle. The error tells of what was not sent; the handle is gone anyway.
 */
CIUIC_API int32_t ciuic_producer_close(ciuic_producer* producer, int64_t timeout_ms, ciuic_error* error);
/* Copies the record. On 0 `callback` (may be NULL) runs exactly once, else never. Any thread. */
CIUIC_API int32_t ciuic_producer_send(ciuic_producer* producer, const ciuic_record_to_send* record,
                                      ciuic_delivery_callback callback, void* opaque, ciuic_error* error);
CIUIC_API int32_t ciuic_producer_flush(ciuic_producer* producer, int64_t timeout_ms, ciuic_error* error);
CIUIC_API int32_t ciuic_producer_partition_count(ciuic_producer* producer, const char* topic, int64_t timeout_ms,
                                                 int32_t* partitions, ciuic_error* error);
CIUIC_API char* ciuic_producer_metrics_json(ciuic_producer* producer);

#ifdef __cplusplus
}
#endif

#endif
