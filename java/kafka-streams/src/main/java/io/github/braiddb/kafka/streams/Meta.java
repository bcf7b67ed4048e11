package io.github.braiddb.kafka.streams;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.query.Position;

/**
 * Rows of a store's tree "meta". Numbers are big-endian.
 *
 * <table>
 * <caption>Rows</caption>
 * <tr><td>{@code "o" topic ":" partition}</td><td>a committed offset of the changelog: 8 bytes</td></tr>
 * <tr><td>{@code "position"}</td><td>topic, partition and offset of each input: UTF, 4 and 8 bytes</td></tr>
 * <tr><td>{@code "time"}</td><td>stream time in milliseconds: 8 bytes</td></tr>
 * <tr><td>{@code "sequence"}</td><td>the last number of a duplicate: 8 bytes</td></tr>
 * <tr><td>{@code "ahead"}</td><td>present while the rows are ahead of the offsets</td></tr>
 * <tr><td>{@code "corrupted"}</td><td>present if the next open must empty the store</td></tr>
 * <tr><td>{@code "proven"}</td><td>a time in milliseconds, after the commit before and before the group accepted
 * the last commit with input: 8 bytes</td></tr>
 * <tr><td>{@code "identity"}</td><td>application, store, topic, partition, topic's id: UTF, partition 4
 * bytes. Present in checkpoints</td></tr>
 * </table>
 */
final class Meta {
    static final byte[] POSITION = bytes("position");
    static final byte[] TIME = bytes("time");
    static final byte[] SEQUENCE = bytes("sequence");
    static final byte[] AHEAD = bytes("ahead");
    static final byte[] CORRUPTED = bytes("corrupted");
    static final byte[] PROVEN = bytes("proven");
    static final byte[] IDENTITY = bytes("identity");

    private Meta() {}

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] offsetKey(TopicPartition partition) {
        return bytes("o" + partition.topic() + ":" + partition.partition());
    }

    static byte[] number(long number) {
        return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }

    static long number(byte[] value, long preset) {
        return value == null ? preset : ByteBuffer.wrap(value).getLong();
    }

    static byte[] encode(StoreCheckpoints.Identity identity) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeUTF(identity.application());
            out.writeUTF(identity.store());
            out.writeUTF(identity.topic());
            out.writeInt(identity.partition());
            out.writeUTF(identity.topicId());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    static StoreCheckpoints.Identity identity(byte[] value) {
        if (value == null) {
            return null;
        }
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(value))) {
            return new StoreCheckpoints.Identity(
                    in.readUTF(), in.readUTF(), in.readUTF(), in.readInt(), in.readUTF());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static byte[] encode(Position position) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            for (String topic : position.getTopics()) {
                for (Map.Entry<Integer, Long> offset : position.getPartitionPositions(topic).entrySet()) {
                    out.writeUTF(topic);
                    out.writeInt(offset.getKey());
                    out.writeLong(offset.getValue());
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    static Position position(byte[] value) {
        Position position = Position.emptyPosition();
        if (value == null) {
            return position;
        }
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(value))) {
            while (in.available() > 0) {
                position.withComponent(in.readUTF(), in.readInt(), in.readLong());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return position;
    }
}
