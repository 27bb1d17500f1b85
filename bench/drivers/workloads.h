#pragma once
#include "bench/drivers/words.h"

/// What a driver program does, over whichever client library is linked. Each prints JSON objects, one a line, and
/// throws std::runtime_error. `watch=PID` names the broker's process, for its share.
namespace ciuic::bench {

/// records (or seconds), record.bytes, payload=random|text, warm.records. Prints one line.
void run_produce(Words& words);
/// records (in the topic), record.bytes, partitions, passes, readers, delivery=views|copied|records, seconds. Reads the
/// topic `passes` times and prints a line a pass. With seconds=N each pass after the first lasts so long, from the
/// beginning again and again; its line has every reader's share.
void run_consume(Words& words);
/// rate, seconds, warm.seconds, record.bytes; read.KEY=VALUE are the reader's settings. One partition; open loop: every
/// record has a time at which it is due, whatever became of those before, and its latency counts from there.
void run_latency(Words& words);
/// partitions, readers, seconds: readers that wait at the end of a log nobody writes to. Prints one line.
void run_idle(Words& words);
/// partitions, members: that many join a group at once, then one more comes, then it leaves. Prints how long each took
/// until every member has its share and every partition is somebody's.
void run_group(Words& words);
/// ranks (a topic each: `topic`-0, `topic`-1, …), batch.records (a rank's part), record.bytes, step.ms, steps,
/// warm.steps. Prints how long the ranks stood still for data. A topic must have (warm.steps + steps) * batch.records
/// records.
void run_train(Words& words);

}  // namespace ciuic::bench
