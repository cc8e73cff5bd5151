//! MAC1, MAC2 and cookies: who may make us work.
