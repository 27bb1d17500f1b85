/* Reads partition 0 of a topic from its beginning to its end: consume HOST:PORT TOPIC */
#include <ciuic/ciuic.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ciuic_config_entry config = {"bootstrap.servers", argv[1]};
  ciuic_topic_partition from = {argv[2], 0, CIUIC_OFFSET_BEGINNING};
  ciuic_batch_info info = {.size = sizeof info};
  ciuic_error error = {.size = sizeof error};
  ciuic_consumer* consumer = NULL;
  ciuic_batch* const* batches;
  size_t count;
  if (ciuic_consumer_open(&config, 1, &consumer, &error) == 0 && ciuic_consumer_assign(consumer, &from, 1, &error) == 0)
    while (ciuic_poll(consumer, 1000, &batches, &count, &error) == 0 && count > 0)
      for (size_t i = 0; i < count && ciuic_batch_info_get(batches[i], &info) == 0; ++i)
        printf("%lld %d\n", (long long)info.base_offset, info.record_count);
  ciuic_consumer_close(consumer);
  return error.code != 0 && fprintf(stderr, "%s\n", error.text);
}
