// What MirrorMaker 2's own classes make of configurations, one line for each answer.
// Arguments: TOPICS GROUPS, then KIND FILE FILE for each. TOPICS and GROUPS are separated by
// commas; KIND is dedicated (its own process, both files are the same) or connector (config
// of the source connector, config of the checkpoint connector). Each line: number of the
// configuration, flow, what was asked, and the answer; nothing of flows that are off.

import java.io.Reader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.connect.mirror.ConfigPropertyFilter;
import org.apache.kafka.connect.mirror.MirrorCheckpointConfig;
import org.apache.kafka.connect.mirror.MirrorCheckpointConnector;
import org.apache.kafka.connect.mirror.MirrorHeartbeatConfig;
import org.apache.kafka.connect.mirror.MirrorHeartbeatConnector;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.ReplicationPolicy;
import org.apache.kafka.connect.mirror.SourceAndTarget;
import org.apache.kafka.connect.mirror.TopicFilter;

public class AskMirrorMaker {
    private static int number;

    public static void main(String[] args) throws Exception {
        String[] topics = args[0].split(",");
        String[] groups = args[1].split(",");
        for (int at = 2; at < args.length; at += 3, number++) {
            try {
                Map<String, String> source = read(Path.of(args[at + 1]));
                if (args[at].equals("connector")) {
                    source.put("enabled", "true");
                    ask("", source, read(Path.of(args[at + 2])), topics, groups);
                } else {
                    dedicated(source, topics, groups);
                }
            } catch (Exception refused) {
                Throwable cause = refused.getCause() == null ? refused : refused.getCause();
                tell("", "refused", String.valueOf(cause.getMessage()).split("\n")[0]);
            }
        }
    }

    private static void dedicated(Map<String, String> read, String[] topics, String[] groups) throws Exception {
        MirrorMakerConfig config = new MirrorMakerConfig(read);
        for (SourceAndTarget pair : config.clusterPairs()) {
            ask(pair.toString(), config.connectorBaseConfig(pair, MirrorSourceConnector.class),
                    config.connectorBaseConfig(pair, MirrorCheckpointConnector.class), topics, groups);
            settings(config, pair);
        }
    }

    private static void ask(String flow, Map<String, String> source, Map<String, String> checkpoint,
            String[] topics, String[] groups) throws Exception {
        MirrorSourceConfig config = new MirrorSourceConfig(source);
        MirrorCheckpointConfig checkpoints = new MirrorCheckpointConfig(checkpoint);
        if (!(boolean) call(config, "enabled")) {
            return;
        }
        String from = (String) call(config, "sourceClusterAlias");
        String to = (String) call(config, "targetClusterAlias");
        ReplicationPolicy policy = (ReplicationPolicy) call(config, "replicationPolicy");
        MirrorSourceConnector connector = made(new SourceAndTarget(from, to), policy,
                call(config, "topicFilter"), call(config, "configPropertyFilter"),
                (boolean) call(config, "heartbeatsReplicationEnabled"));
        for (String topic : topics) {
            boolean copied = (boolean) call(connector, "shouldReplicateTopic", topic);
            tell(flow, "topic " + topic, copied ? policy.formatRemoteTopic(from, topic) : "");
        }
        Object filter = call(checkpoints, "groupFilter");
        for (String group : groups) {
            tell(flow, "group " + group, call(filter, "shouldReplicateGroup", group));
        }
        tell(flow, "checkpoints", call(checkpoints, "checkpointsTopic"));
        tell(flow, "syncs", call(config, "offsetSyncsTopic"));
    }

    /** Everything that a key may change: of the connectors, of their clients, and of the worker that writes. */
    private static void settings(MirrorMakerConfig config, SourceAndTarget pair) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        AbstractConfig source = new MirrorSourceConfig(config.connectorBaseConfig(pair, MirrorSourceConnector.class));
        if (!(boolean) call(source, "enabled")) {
            return;
        }
        AbstractConfig checkpoint =
                new MirrorCheckpointConfig(config.connectorBaseConfig(pair, MirrorCheckpointConnector.class));
        AbstractConfig heartbeat =
                new MirrorHeartbeatConfig(config.connectorBaseConfig(pair, MirrorHeartbeatConnector.class));
        for (AbstractConfig each : List.of(source, checkpoint, heartbeat)) {
            String of = each.getClass().getSimpleName();
            each.values().forEach((name, value) -> found.put(of + " " + name, value));
            for (String clients : List.of("sourceConsumerConfig", "sourceAdminConfig", "targetAdminConfig")) {
                Map<?, ?> made = (Map<?, ?>) call(each, clients, "any");
                made.forEach((name, value) -> found.put(of + " " + clients + " " + name, value));
            }
        }
        source.originals().forEach((name, value) -> {
            if (name.startsWith("producer.override.")) {
                found.put(name, value);
            }
        });
        config.workerConfig(pair).forEach((name, value) -> {
            if (name.startsWith("producer.") || name.equals("exactly.once.source.support")) {
                found.put("worker " + name, value);
            }
        });
        tell(pair.toString(), "settings", found.toString().replaceAll("\\s", " ").replaceAll("@[0-9a-f]+", ""));
    }

    private static MirrorSourceConnector made(Object... with) throws Exception {
        Constructor<MirrorSourceConnector> constructor = MirrorSourceConnector.class.getDeclaredConstructor(
                SourceAndTarget.class, ReplicationPolicy.class, TopicFilter.class, ConfigPropertyFilter.class,
                boolean.class);
        constructor.setAccessible(true);
        return constructor.newInstance(with);
    }

    private static Object call(Object on, String name, Object... with) throws Exception {
        for (Class<?> type = on.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && takes(method, with)) {
                    method.setAccessible(true);
                    return method.invoke(on, with);
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static boolean takes(Method method, Object... with) {
        Class<?>[] types = method.getParameterTypes();
        boolean fits = types.length == with.length;
        for (int at = 0; fits && at < types.length; at++) {
            fits = types[at].isInstance(with[at]);
        }
        return fits;
    }

    private static void tell(String flow, String what, Object answer) {
        System.out.println(number + "\t" + flow + "\t" + what + "\t" + answer);
    }

    private static Map<String, String> read(Path file) throws Exception {
        Properties read = new Properties();
        try (Reader text = Files.newBufferedReader(file)) {
            read.load(text);
        }
        Map<String, String> found = new HashMap<>();
        read.forEach((key, value) -> found.put((String) key, (String) value));
        return found;
    }
}
