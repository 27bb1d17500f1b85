// Apache's own code as the other side of the golden test: writes random messages of every version and batches of every
// codec, reads batches that were written by ours, and lists its error codes. Run as a single source file.
//   Golden messages SEED COUNT NAME…   lines "message NAME VERSION HEX"
//   Golden batches SEED                lines "batch CODEC HEX", each followed by its records
//   Golden read                        reads such batches from stdin, prints them with the records that Java sees
//   Golden errors                      lines "CODE NAME RETRIABLE"

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

public class Golden {
    static final PrintStream out = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16));
    static Random dice;

    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.server.log.remote.metadata.storage.generated."};

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String folder : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(folder + name + suffix);
                } catch (ClassNotFoundException next) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    static String plain(String name) { return name.replace("_", "").toLowerCase(); }

    static Map<String, Field> membersOf(Class<?> type) {
        Map<String, Field> members = new HashMap<>();
        for (Field field : type.getDeclaredFields()) {
            if (java.lang.reflect.Modifier.isStatic(field.getModifiers())) continue;
            field.setAccessible(true);
            members.put(plain(field.getName()), field);
        }
        return members;
    }

    static byte[] bytes(int most) {
        byte[] made = new byte[dice.nextInt(16) == 0 ? dice.nextInt(400) : dice.nextInt(most)];
        dice.nextBytes(made);
        return made;
    }

    static String text() {
        StringBuilder made = new StringBuilder();
        for (int left = dice.nextInt(16) == 0 ? dice.nextInt(300) : dice.nextInt(12); left > 0; --left) {
            made.append((char) (dice.nextInt(20) == 0 ? 0x4E00 + dice.nextInt(99) : 'a' + dice.nextInt(26)));
        }
        return made.toString();
    }

    static long number() { return dice.nextInt(3) == 0 ? dice.nextInt(4) - 1 : dice.nextLong(); }

    /** Puts random values into the members that the version's schema names. */
    static void fill(Object message, Schema schema, int depth) throws Exception {
        Map<String, Field> members = membersOf(message.getClass());
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields tagged) {
                for (org.apache.kafka.common.protocol.types.Field field : tagged.fields().values()) {
                    if (dice.nextBoolean()) set(message, members, field.name, field.type, depth);
                }
            } else {
                set(message, members, bound.def.name, bound.def.type, depth);
            }
        }
    }

    static void set(Object message, Map<String, Field> members, String name,
                    org.apache.kafka.common.protocol.types.Type wire, int depth) throws Exception {
        Field member = members.get(plain(name));
        if (member == null) throw new IllegalStateException(message.getClass() + " has no member " + name);
        if (wire.isNullable() && dice.nextInt(4) == 0) {
            member.set(message, null);
            return;
        }
        member.set(message, value(member.getType(), member.getGenericType(), wire, depth));
    }

    @SuppressWarnings("unchecked")
    static Object value(Class<?> type, Type generic, org.apache.kafka.common.protocol.types.Type wire, int depth) throws Exception {
        if (type == byte.class || type == Byte.class) return (byte) number();
        if (type == short.class || type == Short.class) return (short) number();
        if (type == int.class || type == Integer.class) {
            return wire == org.apache.kafka.common.protocol.types.Type.UINT16 ? (Object) (int) (number() & 0xFFFF) : (Object) (int) number();
        }
        if (type == long.class || type == Long.class) {
            return wire == org.apache.kafka.common.protocol.types.Type.UNSIGNED_INT32 ? number() & 0xFFFFFFFFL : number();
        }
        if (type == double.class) return dice.nextDouble();
        if (type == boolean.class || type == Boolean.class) return dice.nextBoolean();
        if (type == String.class) return text();
        if (type == Uuid.class) return new Uuid(dice.nextLong(), dice.nextLong());
        if (type == byte[].class) return bytes(20);
        if (type == ByteBuffer.class) return ByteBuffer.wrap(bytes(20));
        if (BaseRecords.class.isAssignableFrom(type)) return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(200)));
        if (Collection.class.isAssignableFrom(type)) {
            Type element = generic instanceof ParameterizedType parameterized
                ? parameterized.getActualTypeArguments()[0]
                : ((ParameterizedType) type.getGenericSuperclass()).getActualTypeArguments()[0];
            Collection<Object> made = type.isInterface() ? new java.util.ArrayList<>()
                : (Collection<Object>) type.getDeclaredConstructor().newInstance();
            var inner = wire.arrayElementType().orElseThrow();
            int most = depth == 0 && dice.nextInt(8) == 0 ? 150 : depth > 1 ? 2 : 4;
            for (int left = dice.nextInt(most); left > 0; --left) made.add(value((Class<?>) element, element, inner, depth + 1));
            return made;
        }
        Object nested = type.getDeclaredConstructor().newInstance();
        fill(nested, schemaOf(wire), depth);
        return nested;
    }

    static Schema schemaOf(org.apache.kafka.common.protocol.types.Type wire) {
        return (Schema) wire;
    }

    static void messages(String[] names, int count) throws Exception {
        for (String name : names) {
            Class<?> type = find(name);
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            short low = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            short high = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            for (short version = low; version <= high; ++version) {
                for (int round = 0; round < count; ++round) {
                    Message message = (Message) type.getDeclaredConstructor().newInstance();
                    if (round > 0) fill(message, schemas[version], 0);
                    ObjectSerializationCache cache = new ObjectSerializationCache();
                    ByteBufferAccessor accessor = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
                    message.write(accessor, cache, version);
                    out.println("message " + name + " " + version + " " + HexFormat.of().formatHex(accessor.buffer().array()));
                }
            }
        }
    }

    static String hex(ByteBuffer buffer) {
        return buffer == null ? "-" : "x" + HexFormat.of().formatHex(Utils.toArray(buffer));
    }

    static void print(MemoryRecords records) {
        for (MutableRecordBatch batch : records.batches()) {
            out.println("header " + batch.baseOffset() + " " + batch.lastOffset() + " " + batch.partitionLeaderEpoch() + " "
                + batch.producerId() + " " + batch.producerEpoch() + " " + batch.baseSequence() + " " + batch.maxTimestamp() + " "
                + batch.isTransactional() + " " + batch.isControlBatch() + " " + (batch.timestampType() == org.apache.kafka.common.record.TimestampType.LOG_APPEND_TIME));
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder line = new StringBuilder("record " + record.offset() + " " + record.timestamp() + " " + hex(record.key()) + " " + hex(record.value()));
                for (Header header : record.headers()) {
                    line.append(" x").append(HexFormat.of().formatHex(header.key().getBytes())).append("=")
                        .append(hex(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                }
                out.println(line);
            }
        }
    }

    static void batches() {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            for (int round = 0; round < 12; ++round) {
                boolean appendTime = round % 4 == 3;
                MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2,
                    Compression.of(codec).build(), appendTime ? org.apache.kafka.common.record.TimestampType.LOG_APPEND_TIME : org.apache.kafka.common.record.TimestampType.CREATE_TIME,
                    dice.nextInt(1 << 30), 1700000000000L, dice.nextInt(1 << 20), (short) dice.nextInt(1 << 15), dice.nextInt(1 << 20),
                    round % 3 == 0, false, dice.nextInt(1 << 20), 1 << 20);
                for (int left = 1 + dice.nextInt(round == 5 ? 3000 : 40); left > 0; --left) {
                    Header[] headers = new Header[dice.nextInt(3)];
                    for (int i = 0; i < headers.length; ++i) headers[i] = new RecordHeader(text(), dice.nextInt(4) == 0 ? null : bytes(9));
                    byte[] value = dice.nextInt(6) == 0 ? null : round % 2 == 0 ? bytes(300) : text().repeat(20).getBytes();
                    builder.append(1700000000000L + dice.nextInt(100000), dice.nextInt(4) == 0 ? null : bytes(12), value, headers);
                }
                MemoryRecords records = builder.build();
                batch(codec, records);
            }
        }
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.ABORT, ControlRecordType.COMMIT}) {
            batch("none", MemoryRecords.withEndTransactionMarker(dice.nextInt(1 << 30), 1700000000000L + dice.nextInt(100000), dice.nextInt(1 << 20),
                dice.nextInt(1 << 20), (short) dice.nextInt(1 << 15), new EndTransactionMarker(type, dice.nextInt(1 << 20))));
        }
    }

    static void batch(String codec, MemoryRecords records) {
        out.println("batch " + codec + " " + HexFormat.of().formatHex(Utils.toArray(records.buffer().duplicate())));
        print(records);
    }

    static void read() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.startsWith("batch ")) continue;
            out.println(line);
            print(MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(line.split(" ")[2]))));
        }
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "messages" -> {
                dice = new Random(Long.parseLong(args[1]));
                messages(java.util.Arrays.copyOfRange(args, 3, args.length), Integer.parseInt(args[2]));
            }
            case "batches" -> {
                dice = new Random(Long.parseLong(args[1]));
                batches();
            }
            case "read" -> read();
            case "errors" -> {
                for (Errors error : Errors.values()) {
                    out.println(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
                }
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
        out.flush();
    }
}
