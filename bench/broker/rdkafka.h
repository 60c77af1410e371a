/* The few declarations of librdkafka's stable ABI that load.c needs, so that the library inside the confluent-kafka wheel can be
 * used where no librdkafka headers are installed. Names and layouts are the library's; see its rdkafka.h for what they mean. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_mock_cluster_s rd_kafka_mock_cluster_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_MSG_F_COPY = 0x2 };
enum { RD_KAFKA_OFFSET_BEGINNING = -2, RD_KAFKA_OFFSET_END = -1 };
enum { RD_KAFKA_RESP_ERR__PARTITION_EOF = -191, RD_KAFKA_RESP_ERR__QUEUE_FULL = -184 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *errstr, size_t errstr_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *errstr, size_t errstr_size);
void rd_kafka_destroy(rd_kafka_t *);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *topic, rd_kafka_topic_conf_t *);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *, int timeout_ms);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t len, const void *key, size_t keylen, void *opaque);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t partition, int flags, rd_kafka_message_t *messages, int count);
int rd_kafka_query_watermark_offsets(rd_kafka_t *, const char *topic, int32_t partition, int64_t *low, int64_t *high, int timeout_ms);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int timeout_ms);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int timeout_ms);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t partition, int64_t offset, rd_kafka_queue_t *);
int rd_kafka_consume_stop(rd_kafka_topic_t *, int32_t partition);
int rd_kafka_consume_callback_queue(rd_kafka_queue_t *, int timeout_ms, void (*)(rd_kafka_message_t *, void *), void *opaque);
const char *rd_kafka_err2str(int err);
int rd_kafka_last_error(void);
const char *rd_kafka_version_str(void);
rd_kafka_mock_cluster_t *rd_kafka_mock_cluster_new(rd_kafka_t *, int brokers);
const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *);
int rd_kafka_mock_topic_create(rd_kafka_mock_cluster_t *, const char *topic, int partitions, int replicas);
