// The keys that classes of Kafka's define, one tab-separated line each: class, key.
// Arguments: names of classes; those that these jars do not have are left out.

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.distributed.Crypto;

public class PrintKafkaKeys {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Class<?> type;
            try {
                type = Class.forName(name);
            } catch (ClassNotFoundException absent) {
                continue;
            }
            Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>();
            for (Field field : type.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) && field.getType() == ConfigDef.class) {
                    field.setAccessible(true);
                    keys.putAll(((ConfigDef) field.get(null)).configKeys());
                }
            }
            for (Method method : type.getDeclaredMethods()) {
                Class<?>[] taken = method.getParameterTypes();
                if (!Modifier.isStatic(method.getModifiers()) || taken.length > 1) {
                    continue;
                }
                method.setAccessible(true);
                if (method.getReturnType() == ConfigDef.class && taken.length == 0) {
                    keys.putAll(((ConfigDef) method.invoke(null)).configKeys());
                } else if (method.getReturnType() == ConfigDef.class && taken[0] == Crypto.class) {
                    keys.putAll(((ConfigDef) method.invoke(null, Crypto.SYSTEM)).configKeys());
                } else if (taken.length == 1 && taken[0] == ConfigDef.class) {
                    ConfigDef filled = new ConfigDef();
                    method.invoke(null, filled);
                    keys.putAll(filled.configKeys());
                }
            }
            for (ConfigDef.ConfigKey key : keys.values()) {
                System.out.println(String.join("\t", type.getSimpleName(), key.name));
            }
        }
    }
}
